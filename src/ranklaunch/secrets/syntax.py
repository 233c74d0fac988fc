"""How names and values stand in a line."""

from __future__ import annotations

import re

CONTROL = re.compile(r"\x1b\[[0-?]{0,40}[ -/]{0,4}[@-~]")  # colours, and what moves a cursor
IS = r"\s{0,32}(?::=|[=-]>|=(?!=)|:(?![:=])|：|＝|\.{3,64}\s)\s{0,32}"  # aligned, as in lists of settings: token = x, token ..... x
# What stands before a quote where a text was quoted again, or has bytes: {\\"token\\": \\"x\\"}, b'token'
QUOTED_AGAIN = re.compile(r"\\{1,16}(?=['\"])|(?<![\w\"-])[bBuU](?=\\{0,16}\")|(?<![\w'-])[bBuU](?=\\{0,16}')")
TAG = r"(?:\[[^\]\s]{1,40}\]:?\s)?"  # of a rank
