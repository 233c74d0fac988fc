"""Parser of Python stacks, as faulthandler and py-spy print them.

Sources of the formats: Python's page "faulthandler", and `py-spy dump` in py-spy's README.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MOST_FRAMES = 20  # innermost frames of a thread
_THREAD_NAME = r"(?: \[(?P<name>[^\]\n]{0,64})\])?"  # since Python 3.14
_OF_FAULTHANDLER = re.compile(rf"^(?:Current thread|Thread) 0x[0-9a-f]+{_THREAD_NAME} ?\(most recent call first\):")
_STACK_ALONE = re.compile(r"^Stack \(most recent call first\):")
_OF_PY_SPY = re.compile(r'^Thread (?:0x)?[0-9A-Fa-f]+ \([^)\n]{1,32}\)(?:: "(?P<name>[^"\n]{0,200})")?')
_FRAME = re.compile(r'^ {2}File "(?P<file>[^"\n]{1,500})", line (?P<line>[0-9]{1,9}) in (?P<function>.{1,200})')
_FRAME_OF_PY_SPY = re.compile(r"^ {4}(?P<function>.{1,200}) \((?P<file>[^()\n]{1,500}):(?P<line>[0-9]{1,9})\)$")
_SHUTDOWN, _BOOTSTRAP = "_shutdown", "_bootstrap"  # outermost frames in Python's threading: of the main thread at exit, of other threads
_JOINS = (_SHUTDOWN, "join", "_wait_for_tstate_lock")
FATAL = "Fatal Python error: "


@dataclass(frozen=True)
class Frame:
    function: str
    file: str
    line: int


@dataclass(frozen=True)
class Thread:
    """Thread with its stack. frames: innermost first."""

    name: str
    frames: tuple[Frame, ...]


def threads(text: str) -> list[Thread]:
    """Return the threads of one process, in the order of the text."""
    by_thread: list[tuple[str, list[Frame]]] = []
    for line in text.splitlines():
        head = _OF_FAULTHANDLER.match(line) or _OF_PY_SPY.match(line)
        frame = _FRAME.match(line) or _FRAME_OF_PY_SPY.match(line)
        if head or _STACK_ALONE.match(line):
            by_thread.append(((head["name"] or "") if head else "", []))
        elif frame and by_thread and len(by_thread[-1][1]) < MOST_FRAMES:
            by_thread[-1][1].append(Frame(frame["function"], frame["file"], int(frame["line"])))
    return [Thread(name, tuple(frames)) for name, frames in by_thread]


def main(text: str) -> tuple[Frame, ...]:
    """Return the main thread's frames: of the thread MainThread, else of the last one, because faulthandler prints the newest
    thread first. If the main thread waits for another thread at exit, return that thread's frames."""
    with_frames = [thread for thread in threads(text) if thread.frames]
    if not with_frames:
        return ()
    main_thread = ([thread for thread in with_frames if thread.name == "MainThread"] or with_frames[-1:])[0]
    others = [thread for thread in with_frames if thread is not main_thread and thread.frames[-1].function == _BOOTSTRAP]
    if main_thread.frames[0].function in _JOINS and main_thread.frames[-1].function == _SHUTDOWN and others:
        return others[-1].frames
    return main_thread.frames


def written_on_abort(output: str) -> str:
    """Return the stacks that faulthandler wrote at the end of an output at SIGABRT; "" for none."""
    start = output.rfind(f"{FATAL}Aborted")
    return output[start:] if start >= 0 else ""


def line(frame: Frame) -> str:
    """Return a frame as faulthandler writes it."""
    return f'File "{frame.file}", line {frame.line} in {frame.function}'


def place(frame: Frame) -> str:
    """Return a frame in short form, for example: all_reduce at train.py:88"""
    return f"{frame.function} at {frame.file.rpartition('/')[2]}:{frame.line}"
