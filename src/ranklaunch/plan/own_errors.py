"""Known errors of the user's own, looked at before a job needs them."""

from __future__ import annotations

from ranklaunch import catalogue
from ranklaunch.files import absolute
from ranklaunch.read.reader import Reader
from ranklaunch.read.settings import KNOWN_ERRORS


def folder(reader: Reader) -> str:
    """Where they are; what is wrong with them is a problem."""
    path = absolute(reader.get(KNOWN_ERRORS), reader.cwd)
    try:
        catalogue.with_own(reader.files, path)
    except ValueError as error:
        reader.problem(f"{reader.quoted(KNOWN_ERRORS)}: {error}")
    return path
