"""Variables of features that few jobs use. A start imports this module only if one of them is set."""

from __future__ import annotations

import re
import shlex

from ranklaunch import spans
from ranklaunch.env import parse
from ranklaunch.env.reader import Variable
from ranklaunch.errors import number
from ranklaunch.hangs import expect

# Lines of ranks on the console

ALL, FOLD = "all", "fold"
UNITS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_SIZE = re.compile(r"([0-9]{1,15})[ ]?([KMGT]?)(?:I?B)?")


def ranks(text: str) -> str:
    """Check a list of ranks and return its text, "" for all: the console parses the text again. Raise ValueError with the expected form."""
    word = text.strip()
    if word.lower() == ALL:
        return ""
    try:
        return str(spans.parse(word))
    except ValueError as error:
        msg = f"{error}, or {ALL}"
        raise ValueError(msg) from None


def size(text: str) -> int:
    """Return the bytes of 100000, 512K or 1G; units are powers of 1024."""
    match = _SIZE.fullmatch(text.strip().upper())
    if not match:
        msg = "expected bytes, such as 100000, 512K, 100M or 1G"
        raise ValueError(msg)
    return int(match[1]) << (10 * UNITS[match[2]])


CONSOLE = Variable(
    "console", ("RANKLAUNCH_CONSOLE",), ranks, "", "ranks whose lines the console shows: all, or such as 0,8-15; logs have all lines",
    option="--console", default_text=ALL,
)  # fmt: skip
CONSOLE_MERGE = Variable(
    "console_merge", ("RANKLAUNCH_CONSOLE_MERGE",), parse.flag, False, "the console shows equal lines of several ranks of a node once, "
    "with their ranks", option="--console-merge",
)  # fmt: skip
CONSOLE_MAX = Variable(
    "console_max", ("RANKLAUNCH_CONSOLE_MAX",), size, 0, "bytes of ranks' lines on a node's console, such as 500M; after them the console "
    "shows only the lines of rank 0, warnings and errors; 0: no limit", option="--console-max",
)  # fmt: skip
CONSOLE_VICTIMS = Variable(
    "console_victims", ("RANKLAUNCH_CONSOLE_VICTIMS",), parse.OneOf(FOLD, ALL), FOLD, "after a failure, lines of the ranks that are "
    "stopped because of it: fold (one line names their logs) or all", option="--console-victims",
)  # fmt: skip

# Jobs that hang

OBSERVE, STOP, RESTART, OFF = "observe", "stop", "restart", "off"
LEAST_S = 0.5


def slow(text: str) -> float:
    """Return the factor of a slow job: at least 1, or 0 to turn the check off."""
    factor = parse.decimal(text)
    if factor is None or 0 < factor < 1:
        msg = "expected a number, at least 1, or 0 for off"
        raise ValueError(msg)
    return factor


def rules(text: str) -> str:
    """Check the rules and return their text: the hang detector parses the text again. Raise ValueError with the expected form."""
    expect.parse(parse.text(text))
    return text


HANG = Variable(
    "hang", ("RANKLAUNCH_HANG",), parse.OneOf(OBSERVE, STOP, RESTART, OFF), OBSERVE, "action when no rank of any node makes progress: "
    "observe (print the alarm and collect evidence), stop (then end the job with 75), restart (as stop, but start all ranks again in place "
    "if RANKLAUNCH_MAX_RESTARTS allows it), off (no detection)", option="--hang",
)  # fmt: skip
HANG_S = Variable(
    "hang_s", ("RANKLAUNCH_HANG_S",), parse.seconds_from(LEAST_S), 300.0, "seconds without any sign of life after which a job is "
    "suspected to hang", option="--hang-s",
)  # fmt: skip
FIRST_STEP_S = Variable(
    "first_step_s", ("RANKLAUNCH_FIRST_STEP_S",), parse.seconds_from(LEAST_S), 1800.0, "as RANKLAUNCH_HANG_S, before the first step, while "
    "programs load and compile", option="--first-step-s",
)  # fmt: skip
EXPECT = Variable(
    "expect", ("RANKLAUNCH_EXPECT",), rules, "", "rules for the ranks' output, with semicolons between them: REGEX by N s, REGEX every "
    "N s, REGEX is number, or REGEX < NUMBER, with <, <=, > or >=, a number or Kx median, and perhaps for N s",
    option="--expect",
)  # fmt: skip
SLOW = Variable(
    "slow", ("RANKLAUNCH_SLOW",), slow, 2.0, "a job is reported as slow when its steps take this many times as long as before; 0: never",
    option="--slow",
)  # fmt: skip

# Tools that get metrics and events of the job


def words(text: str) -> tuple[str, ...]:
    """Return the words of a command, split as by a shell; the command runs without a shell."""
    if "\0" in text:
        msg = "expected a command without NUL"
        raise ValueError(msg)
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        msg = f"expected a command: {error}"
        raise ValueError(msg) from None


METRICS_FILE = Variable(
    "metrics_file", ("RANKLAUNCH_METRICS_FILE",), parse.text, "", "a file of metrics in the form of OpenMetrics, which each node writes "
    "anew every 15 s and at the end; {node} in it is the node's index", option="--metrics-file",
)  # fmt: skip
METRICS_PORT = Variable(
    "metrics_port", ("RANKLAUNCH_METRICS_PORT",), parse.port_or_0, 0, "port at which each node serves its metrics to Prometheus, and "
    "/healthz and /readyz to probes; 0: none", option="--metrics-port",
)  # fmt: skip
ON_EVENT: Variable[tuple[str, ...]] = Variable(
    "on_event", ("RANKLAUNCH_ON_EVENT",), words, (), "a command that node 0 runs at a hang alarm, when the job becomes slow, at a "
    "restart in place and after the verdict, for at most 30 s, with the event's name (hang, slow, restart, verdict) and the path of its "
    "JSON", option="--on-event",
)  # fmt: skip
SERVER_URL = "KUBEFLOW_TRAINER_SERVER_URL"
TRAINJOB_STATUS = Variable(
    "trainjob_status", ("RANKLAUNCH_TRAINJOB_STATUS",), parse.flag, False, "node 0 reports the number of finished steps to the status of "
    "its TrainJob, if Kubeflow Trainer names a server for that; for programs that do not report it themselves",
    option="--trainjob-status", is_switch=True,
)  # fmt: skip

# Restarts in place


def codes(value: str) -> tuple[int, ...]:
    """Return the exit codes of a text such as 3,17."""
    items = [item.strip() for item in value.split(",") if item.strip()]
    numbers = [number(item) for item in items]
    if not all(code and code < 256 for code in numbers):
        msg = "expected exit codes from 1 to 255, with commas between them"
        raise ValueError(msg)
    return tuple(code for code in numbers if code)


def patterns(value: str) -> tuple[str, ...]:
    """Return the patterns of paths of a text with colons between them."""
    if "\0" in value:
        msg = "expected paths with colons between them"
        raise ValueError(msg)
    return parse.paths(value)


NO_RESTART_CODES: Variable[tuple[int, ...]] = Variable(
    "no_restart_codes", ("RANKLAUNCH_NO_RESTART_CODES",), codes, (), "exit codes after which ranks are not started again in place, with "
    "commas between them; 2, 69 and 78 are among them in any case",
)  # fmt: skip
PROGRESS_FILE: Variable[tuple[str, ...]] = Variable(
    "progress_file", ("RANKLAUNCH_PROGRESS_FILE",), patterns, (), "files or folders that change with each checkpoint, by which restarts "
    "in place recognise progress, and a stop a finished save: paths with wildcards, with colons between them (/ckpt/latest, "
    "/ckpt/checkpoint-*)",
)  # fmt: skip

# Requests to save

NONE = "none"
SIGNALS = ("USR1", "USR2", "TERM", NONE)


def signal_name(text: str) -> str:
    """Return the name of a signal without SIG, or none. Raise ValueError with the expected names."""
    name = text.strip().upper()
    name = name[3:] if name.startswith("SIG") else name
    if name == NONE.upper():
        return NONE
    if name not in SIGNALS:
        msg = f"expected one of {', '.join(SIGNALS)}"
        raise ValueError(msg)
    return name


SAVE_SIGNAL = Variable(
    "save_signal", ("RANKLAUNCH_SAVE_SIGNAL",), signal_name, NONE, "signal that asks the ranks to save: "
    "USR1, USR2, TERM or none", option="--save-signal",
)  # fmt: skip
SAVE_FILE = Variable(
    "save_file", ("RANKLAUNCH_SAVE_FILE",), parse.text, "", "file that is touched to ask the ranks to save, for training loops that look "
    "for it", option="--save-file",
)  # fmt: skip

# Checks of a program that ends with 0

WHOLE, PROGRAM = "whole", "program"
WAIT, KILL = "wait", "kill"
ALLOW = "allow"

EXIT = Variable(
    "exit", ("RANKLAUNCH_EXIT",), parse.OneOf(WHOLE, PROGRAM), WHOLE, "basis of the job's success: whole (exit status of the program, of "
    "launchers whose failure a shell script hid, and of ranks that outlive the program) or program (its exit status alone)",
)  # fmt: skip
LEFT_RANKS = Variable(
    "left_ranks", ("RANKLAUNCH_LEFT_RANKS",), parse.OneOf(WAIT, KILL), WAIT, "ranks that still run when the program has ended with 0: wait "
    "for them, or kill them",
)  # fmt: skip
ALONE_S = Variable(
    "alone_s", ("RANKLAUNCH_ALONE_S",), parse.seconds, 60.0, "seconds for which the ranks of one of several nodes may train without those "
    "of the others before the job is ended",
)  # fmt: skip
EACH_NODE_ALONE = Variable(
    "each_node_alone", ("RANKLAUNCH_EACH_NODE_ALONE",), parse.flag, False, "let each of several nodes train alone",
)  # fmt: skip
NESTED = Variable(
    "nested", ("RANKLAUNCH_NESTED",), parse.OneOf(STOP, ALLOW), STOP, "stop or allow a job whose ranks start ranks of their own on the "
    "same devices, slots or port",
)  # fmt: skip

Table = tuple[Variable[object], ...]
OF_CONSOLE: Table = (CONSOLE, CONSOLE_MERGE, CONSOLE_MAX, CONSOLE_VICTIMS)
OF_HANGS: Table = (HANG, HANG_S, FIRST_STEP_S, EXPECT, SLOW)
OF_TOOLS: Table = (METRICS_FILE, METRICS_PORT, ON_EVENT, TRAINJOB_STATUS)
OF_RESTARTS: Table = (NO_RESTART_CODES, PROGRESS_FILE)
OF_SAVING: Table = (SAVE_SIGNAL, SAVE_FILE)
OF_TRUST: Table = (EXIT, LEFT_RANKS, ALONE_S, EACH_NODE_ALONE, NESTED)
VARIABLES: Table = (*OF_RESTARTS, *OF_CONSOLE, *OF_HANGS, *OF_SAVING, *OF_TOOLS, *OF_TRUST)

# The command check

CHECK_FORMAT = Variable(
    "check_format", ("RANKLAUNCH_CHECK_FORMAT",), parse.OneOf("text", "json"), "text", "form of check's output: text for people, json for "
    "tools", option="--format",
)  # fmt: skip

CHECK_VARIABLES: Table = (CHECK_FORMAT,)  # of the command check alone
