"""How a trainer is asked to save its work, without being stopped. Few say anything of it, so a start imports this where one does."""

from __future__ import annotations

from ranklaunch.env import parse
from ranklaunch.env.reader import Reader, Variable
from ranklaunch.files import absolute

NONE = "none"
SIGNALS = ("USR1", "USR2", "TERM", NONE)


def signal_name(text: str) -> str:
    """Without its SIG. Raises ValueError with what was expected."""
    name = text.strip().upper()
    name = name[3:] if name.startswith("SIG") else name
    if name == NONE.upper():
        return NONE
    if name not in SIGNALS:
        msg = f"expected one of {', '.join(SIGNALS)}"
        raise ValueError(msg)
    return name


SAVE_SIGNAL = Variable(
    "save_signal", ("RANKLAUNCH_SAVE_SIGNAL",), signal_name, NONE, "the signal by which the ranks are asked "
    "to save: USR1, USR2, TERM or none", option="--save-signal",
)  # fmt: skip
SAVE_FILE = Variable(
    "save_file", ("RANKLAUNCH_SAVE_FILE",), parse.text, "", "a file that is touched where the ranks are asked to save, for loops that look "
    "for it", option="--save-file",
)  # fmt: skip


def given(reader: Reader) -> tuple[str, str]:
    """The signal without its SIG and the absolute path of the file, "" for what there is not."""
    number, path = reader.get(SAVE_SIGNAL), reader.get(SAVE_FILE)
    return "" if number == NONE else number, absolute(path, reader.cwd) if path else ""


VARIABLES: tuple[Variable[object], ...] = (SAVE_SIGNAL, SAVE_FILE)
