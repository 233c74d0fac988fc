"""Default configuration file of accelerate, read if the user names none."""

from __future__ import annotations

import re

from ranklaunch.env import parse
from ranklaunch.env.reader import Reader, Variable
from ranklaunch.files import join

HF_HOME = Variable("hf_home", ("HF_HOME",), parse.text, "", "Hugging Face's cache", "image", default_text="huggingface in XDG_CACHE_HOME")
CACHE = Variable("xdg_cache_home", ("XDG_CACHE_HOME",), parse.text, "", "caches of the user's programs", "image", default_text="~/.cache")
HOME = Variable("home", ("HOME",), parse.text, "", "the user's folder", "image", default_text="the account's")


def path(reader: Reader) -> str:
    """Return the path of the default configuration file, "" if none exists."""
    cache = _text(reader, HF_HOME) or join(_text(reader, CACHE) or "~/.cache", "huggingface")
    if re.match("~(/|$)", cache):
        cache = f"{_text(reader, HOME) or reader.account.home}{cache[1:]}"
    folder = join(reader.absolute(cache), "accelerate")
    names = (join(folder, name) for name in ("default_config.yaml", "default_config.json"))
    return next((name for name in names if reader.files.exists(name)), "")


def _text(reader: Reader, variable: Variable[str]) -> str:
    """Return a variable's text without recording it in the plan."""
    return next((candidate.value for candidate in reader.candidates(variable)), "")
