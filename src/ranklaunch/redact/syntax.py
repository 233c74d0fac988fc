"""How names and values stand in a line."""

from __future__ import annotations

import re

CONTROL = re.compile(r"(?:\x1b|\\{1,16}(?:x1[bB]|u001[bB]|033|e))\[[0-?]{0,40}[ -/]{0,4}[@-~]")  # colours, and what moves a cursor
IS = r"\s{0,32}(?::=|[=-]>|=(?!=)|:(?![:=])|：|＝|\.{3,64}\s)\s{0,32}"  # aligned, as in lists of settings: token = x, token ..... x
# What stands before a quote where a text was quoted again, or has bytes: {\\"token\\": \\"x\\"}, b'token'
QUOTED_AGAIN = re.compile(r"\\{1,16}(?=['\"])|(?<![\w\"-])[bBuU](?=\\{0,16}\")|(?<![\w'-])[bBuU](?=\\{0,16}')")
# A line end or a tab in a text that was quoted is white space as long as it was, so that it is no letter of the name behind it.
_WRITTEN = re.compile(r"\\{1,16}[nrt]")
_BLANKS = str.maketrans("\\nrt", "\x1c\x1d\x1e\x1f")
_BACK = {blank: letter for letter, blank in _BLANKS.items()}
BREAK = r"[\x1c-\x1f]"
TAG = r"(?:\[[^\]\s]{1,40}\]:?\s)?"  # of a rank


def with_breaks(text: str) -> str:
    """Text with these, and with blanks where any stood before."""
    return _WRITTEN.sub(lambda found: found[0].translate(_BLANKS), re.sub(BREAK, " ", text))


def without_breaks(text: str) -> str:
    return text.translate(_BACK)
