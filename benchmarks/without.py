"""ranklaunch without one of its parts, to measure the cost of this part:

python benchmarks/without.py nothing|events|logs|tags|times run [OPTIONS] [--] PROGRAM [ARGS...]
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from ranklaunch.entrypoints.main import script
from ranklaunch.output.logs import Times
from ranklaunch.output.pipe import Output
from ranklaunch.supervise.record import Record


def without_events() -> None:
    Record.event = lambda *args, **details: None  # type: ignore[method-assign]


def without_logs() -> None:
    _change_output(lambda paths, tag: ((), tag))


def without_tags() -> None:
    _change_output(lambda paths, tag: (paths, ""))


def without_times() -> None:
    Times.of = lambda *args: None  # type: ignore[method-assign]


def _change_output(change: Any) -> None:
    init = Output.__init__

    @functools.wraps(init)
    def changed(self: Output, paths: tuple[str, ...], tag: str, *rest: Any) -> None:
        init(self, *change(paths, tag), *rest)

    Output.__init__ = changed  # type: ignore[method-assign]


TAKE_OUT = {"nothing": lambda: None, "events": without_events, "logs": without_logs, "tags": without_tags, "times": without_times}

if __name__ == "__main__":
    TAKE_OUT[sys.argv.pop(1)]()
    script()
