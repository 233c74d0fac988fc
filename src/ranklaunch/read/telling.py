"""What tools are told of a job, and in which form. Few ask for it, so a start imports this where one does."""

from __future__ import annotations

from ranklaunch.read import parse
from ranklaunch.read.reader import Variable

CHECK_FORMAT = Variable(
    "check_format", ("RANKLAUNCH_CHECK_FORMAT",), parse.one_of("text", "json"), "text", "how check shows: text for people, json for tools",
    option="--format",
)  # fmt: skip

CHECK_VARIABLES: tuple[Variable[object], ...] = (CHECK_FORMAT,)  # of the command check alone
