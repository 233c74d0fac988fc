"""How a trainer is asked to save its work, without being stopped. Few say anything of it, so a start imports this where one does."""

from __future__ import annotations

from ranklaunch.read import parse
from ranklaunch.read.reader import Variable

NONE = "none"

SAVE_SIGNAL = Variable(
    "save_signal", ("RANKLAUNCH_SAVE_SIGNAL",), parse.one_of("USR1", "USR2", "TERM", NONE), NONE, "the signal by which the ranks are asked "
    "to save: USR1, USR2, TERM or none", option="--save-signal",
)  # fmt: skip
SAVE_FILE = Variable(
    "save_file", ("RANKLAUNCH_SAVE_FILE",), parse.text, "", "a file that is touched where the ranks are asked to save, for loops that look "
    "for it", option="--save-file",
)  # fmt: skip

VARIABLES: tuple[Variable[object], ...] = (SAVE_SIGNAL, SAVE_FILE)
