"""Settings of restarts in place, beside how many there may be."""

from __future__ import annotations

from ranklaunch.env.reader import Variable
from ranklaunch.errors import number


def codes(value: str) -> tuple[int, ...]:
    """Exit codes with commas between them."""
    words = [word.strip() for word in value.split(",") if word.strip()]
    found = [number(word) for word in words]
    if not all(code and code < 256 for code in found):
        msg = "expected exit codes from 1 to 255, with commas between them"
        raise ValueError(msg)
    return tuple(code for code in found if code)


def paths(value: str) -> tuple[str, ...]:
    """Patterns of paths with colons between them."""
    if "\0" in value:
        msg = "expected paths with colons between them"
        raise ValueError(msg)
    return tuple(path for path in value.split(":") if path)


NO_RESTART_CODES: Variable[tuple[int, ...]] = Variable(
    "no_restart_codes", ("RANKLAUNCH_NO_RESTART_CODES",), codes, (), "exit codes after which ranks are not started again in place, with "
    "commas between them; 2, 69 and 78 are among them in any case",
)  # fmt: skip
PROGRESS_FILE: Variable[tuple[str, ...]] = Variable(
    "progress_file", ("RANKLAUNCH_PROGRESS_FILE",), paths, (), "markers of the trainer's checkpoints, by which restarts in place tell "
    "progress, and a stop whether it was saved: paths with wildcards, with colons between them (/ckpt/latest, /ckpt/checkpoint-*)",
)  # fmt: skip

VARIABLES: tuple[Variable[object], ...] = (NO_RESTART_CODES, PROGRESS_FILE)
