"""The console script: find the command, and turn every error into one message and the right exit code."""

from __future__ import annotations

import errno
import gc
import io
import os
import select
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any

from ranklaunch import __version__

# name: (module, meaning). Only the module of the chosen command is imported.
COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("run", "launch this node's part of the job: the container ENTRYPOINT"),
    "plan": ("plan", "show what run would do, and why; starts and writes nothing"),
    "check": ("check", "show everything that would make run fail, at once; starts nothing"),
    "simulate": ("simulate", "run a whole job on this machine, one run per node on 127.0.0.x"),
    "status": ("status", "show a running job: its nodes, its ranks, and what it waits for"),
    "save": ("save", "ask all ranks of a running job to save"),
    "stacks": ("stacks", "show where the ranks of a running job are; the job goes on"),
    "report": ("report", "show what happened in a job, and where its time went, from its log folder"),
    "logs": ("logs", "show the lines of all ranks of all nodes in the order of time, also of a running job"),
    "tune": ("tune", "find the fastest DeepSpeed configuration that fits, by trying"),
    "spec": ("spec", "write a platform's job spec that runs this program"),
    "template": ("template", "print a template that ranklaunch ships, or list them"),
    "explain": ("explain", "show what is known of the errors in a log, of any program"),
    "layout": ("layout", "show Megatron's groups of ranks, and the node and the layers of each rank"),
    "ranktable": ("ranktable", "show, validate, convert, make and compare rank tables"),
    "completion": ("completion", "write a completion script for bash, zsh or fish"),
}

NEEDED, MISSING = ("jinja2", "markupsafe"), 69
INTERRUPTED = 130
GONE = 1  # exit code after a broken pipe
TRY_AGAIN = 75  # exit code of errors.WaitError, whose module may fail to load
REFUSES, NO_MEMORY = "ranklaunch: the system refuses, trying again may help", "no memory left"
SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.ENOSPC, errno.EDQUOT)


def script() -> None:
    """Run the command line; entry point of the console script."""
    try:
        code = _flushed(_started(sys.argv[1:]))
    except KeyboardInterrupt:  # only from commands that start nothing: the rest have handlers
        code = _flushed(INTERRUPTED)
    except (OSError, MemoryError) as error:  # not even the modules for messages can be loaded
        code = _refused(error)
    os._exit(code)  # sys.exit would wait for a resolver's thread, which a silent name server may block


def _started(argv: list[str]) -> int:
    supervises = argv[:1] in (["run"], ["simulate"], ["tune"])
    _open_standard_descriptors(supervises)
    signals = None
    if supervises:
        from ranklaunch.system.signals import Signals

        signals = Signals()  # before further imports: from here on no stop request is lost
    elif signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.disable()  # planning makes no reference cycles, and collection takes a third of the time for a large rank table
    return main(argv, inherited_environment(), signals)


def _flushed(code: int) -> int:
    """Return the exit code; another one if stdout has not taken all output. A broken pipe gets no message: its reader has gone."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        return code or GONE
    except OSError as error:
        if not code and _is_shortage(error):
            return _refused(error)
    return code


def _refused(error: Exception) -> int:
    """Report that the system refuses a resource, without importing a module. Returns the exit code."""
    try:
        os.write(2, f"{REFUSES}: {str(error) or NO_MEMORY}\n".encode(errors="replace"))
    except OSError:
        pass
    return TRY_AGAIN


def main(argv: list[str], env: Mapping[str, str], signals: object = None) -> int:
    """Run one command and return its exit code."""
    from ranklaunch.errors import DEFECT, RanklaunchError

    try:
        command = _command(argv)
        return command(argv[1:], env, signals) if command else 0
    except RanklaunchError as error:
        return _fail(str(error), error.exit_code)
    except SystemExit as leave:  # --help
        return int(leave.code or 0)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # so that Python reports no second error at exit
        return GONE
    except Exception as error:
        if _is_shortage(error):
            return _refused(error)
        if isinstance(error, ModuleNotFoundError) and error.name in NEEDED:
            return _fail(f"{error}: {sys.executable}, which runs ranklaunch, needs this module: install ranklaunch there with pip", MISSING)
        import traceback

        return _fail(f"a defect in ranklaunch {__version__}; please report it with this:\n{traceback.format_exc()}", DEFECT)


def _is_shortage(error: Exception) -> bool:
    """Return True for a shortage of descriptors, memory, processes or disk, or of a reader of our output. Without memory, Python also
    raises SystemError ("error return without exception set"), and ImportError for a library of its own."""
    is_unmapped = isinstance(error, ImportError) and "failed to map segment" in str(error)
    is_refused = isinstance(error, OSError) and error.errno in SHORTAGES
    return is_unmapped or is_refused or isinstance(error, (MemoryError, SystemError, NotTakenError))


def _command(argv: list[str]) -> Callable[[list[str], Mapping[str, str], object], int] | None:
    from ranklaunch.errors import UsageError, nearest

    if not argv:
        msg = f"no command given\n{_help()}"
        raise UsageError(msg)
    if argv[0] in ("-h", "--help", "help"):
        print(_help())
        return None
    if argv[0] in ("-V", "--version"):
        print(f"ranklaunch {__version__}")
        return None
    if argv[0] not in COMMANDS:
        msg = f"unknown command {argv[0]!r}: expected one of {', '.join(COMMANDS)}{nearest(argv[0], COMMANDS)}"
        raise UsageError(msg)
    import importlib

    module = importlib.import_module(f"ranklaunch.entrypoints.{COMMANDS[argv[0]][0]}")
    command: Callable[[list[str], Mapping[str, str], object], int] = module.main
    return command


def _help() -> str:
    from ranklaunch.errors import EXIT_CODES

    commands = "\n".join(f"  {name:10} {text}" for name, (_, text) in COMMANDS.items())
    codes = "\n".join(f"  {code:<10} {text}" for code, text in EXIT_CODES.items())
    return (
        f"usage: ranklaunch COMMAND [OPTIONS] [--] PROGRAM [ARGS...]\n\ncommands (ranklaunch COMMAND --help):\n{commands}\n\n"
        f"exit codes: the first failed rank's own, 128+N after signal N, and\n{codes}"
    )


def _fail(message: str, exit_code: int) -> int:
    from ranklaunch.errors import reason, shortened

    lines = "".join(f"ranklaunch: {shortened(line)}\n" for line in reason(message).splitlines())
    try:
        sys.stderr.write(lines.encode(errors="backslashreplace").decode())
        sys.stderr.flush()
    except OSError:  # nobody reads stderr, or its disk is full: the exit code remains
        pass
    return exit_code


def inherited_environment() -> dict[str, str]:
    """Return the environment as given, for ranks to inherit.

    Left out are LC_CTYPE, if Python itself has added it at its start (PEP 538), and a variable without a name, with which Python cannot
    start a process.
    """
    env = {name: value for name, value in os.environ.items() if name}
    if "LC_CTYPE" in env:
        try:
            with open("/proc/self/environ", "rb") as file:
                environment = file.read()
        except OSError:
            return env
        if not any(pair.startswith(b"LC_CTYPE=") for pair in environment.split(b"\0")):
            del env["LC_CTYPE"]
    return env


def _open_standard_descriptors(supervises: bool) -> None:
    """Open closed standard descriptors, and make text streams of them.

    A file opened later would get the number of a closed stdout, and with it the console's text.
    """
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    sys.stdout = _text(1, "standard output")
    if supervises:  # the supervisor writes to the console itself: a blocked console must not hold up its ranks
        sys.stderr = sys.stderr or os.fdopen(2, "w", encoding="utf-8", closefd=False)
    else:
        sys.stderr = _text(2, "standard error")


def _text(fd: int, name: str) -> io.TextIOWrapper:
    """Return a UTF-8 stream of a descriptor, in any locale. Text that UTF-8 cannot encode is escaped."""
    by_line = fd == 2 or os.isatty(fd)
    return io.TextIOWrapper(io.BufferedWriter(Whole(fd, name)), encoding="utf-8", errors="backslashreplace", line_buffering=by_line)


class NotTakenError(OSError):
    """Output that cannot be written."""


class Whole(io.RawIOBase):
    """Descriptor for complete writes: takes all data, or raises. Python's own stream, with PYTHONUNBUFFERED, drops data without room in a
    full pipe or in a file at its limit."""

    def __init__(self, fd: int, name: str) -> None:
        self._fd = fd
        self.name = name

    def fileno(self) -> int:
        return self._fd

    def isatty(self) -> bool:
        return os.isatty(self._fd)

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        remaining = memoryview(data).cast("B")
        size = len(remaining)
        while remaining:
            try:
                remaining = remaining[os.write(self._fd, remaining) :]
            except BlockingIOError:
                poll = select.poll()
                poll.register(self._fd, select.POLLOUT)
                poll.poll()
            except BrokenPipeError:
                raise
            except OSError as error:
                raise NotTakenError(error.errno, error.strerror, self.name) from None
        return size
