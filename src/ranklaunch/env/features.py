"""Settings of features that few jobs ask for: a start imports this module only where one is set."""

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
    """As they are: whoever shows lines takes them apart; "" for all. Raises ValueError with what was expected."""
    word = text.strip()
    if word.lower() == ALL:
        return ""
    try:
        return str(spans.parse(word))
    except ValueError as error:
        msg = f"{error}, or {ALL}"
        raise ValueError(msg) from None


def size(text: str) -> int:
    """Bytes; a unit is one of 1024."""
    match = _SIZE.fullmatch(text.strip().upper())
    if not match:
        msg = "expected bytes, such as 100000, 512K, 100M or 1G"
        raise ValueError(msg)
    return int(match[1]) << (10 * UNITS[match[2]])


CONSOLE = Variable(
    "console", ("RANKLAUNCH_CONSOLE",), ranks, "", "whose lines the console shows: all, or ranks such as 0,8-15; logs have those of all",
    option="--console", default_text=ALL,
)  # fmt: skip
CONSOLE_MERGE = Variable(
    "console_merge", ("RANKLAUNCH_CONSOLE_MERGE",), parse.flag, False, "the console shows equal lines of several ranks of a node once, "
    "with their ranks", option="--console-merge",
)  # fmt: skip
CONSOLE_MAX = Variable(
    "console_max", ("RANKLAUNCH_CONSOLE_MAX",), size, 0, "bytes of ranks' lines on a node's console, such as 500M, after which it shows "
    "those of rank 0, warnings and errors alone; 0: no limit", option="--console-max",
)  # fmt: skip
CONSOLE_VICTIMS = Variable(
    "console_victims", ("RANKLAUNCH_CONSOLE_VICTIMS",), parse.OneOf(FOLD, ALL), FOLD, "after a failure, lines of the ranks that are ended "
    "for it: fold (one line names their logs) or all", option="--console-victims",
)  # fmt: skip

# Jobs that hang

OBSERVE, STOP, RESTART, OFF = "observe", "stop", "restart", "off"
LEAST_S = 0.5


def slow(text: str) -> float:
    """Parse the factor of a slow job. 0 turns the watch off."""
    factor = parse.decimal(text)
    if factor is None or 0 < factor < 1:
        msg = "expected a number, at least 1, or 0 for off"
        raise ValueError(msg)
    return factor


def rules(text: str) -> str:
    """As they are: whoever watches makes patterns of them. Raises ValueError with what was expected."""
    expect.parse(parse.text(text))
    return text


HANG = Variable(
    "hang", ("RANKLAUNCH_HANG",), parse.OneOf(OBSERVE, STOP, RESTART, OFF), OBSERVE, "what is done where no rank of any node moves: "
    "observe: it is said, and evidence is taken; stop: the job fails with 75; restart: the same, as a failure that may be restarted; "
    "off: nobody looks", option="--hang",
)  # fmt: skip
HANG_S = Variable(
    "hang_s", ("RANKLAUNCH_HANG_S",), parse.seconds_from(LEAST_S), 300.0, "seconds without any sign of life after which a job is "
    "suspected to hang", option="--hang-s",
)  # fmt: skip
FIRST_STEP_S = Variable(
    "first_step_s", ("RANKLAUNCH_FIRST_STEP_S",), parse.seconds_from(LEAST_S), 1800.0, "the same before the first step, when programs load "
    "and compile", option="--first-step-s",
)  # fmt: skip
EXPECT = Variable(
    "expect", ("RANKLAUNCH_EXPECT",), rules, "", "what is expected of the ranks' output: rules with semicolons between them, each REGEX by "
    "N s, REGEX every N s, REGEX is number, or REGEX < NUMBER, with <, <=, > or >=, a number or Kx median, and perhaps for N s",
    option="--expect",
)  # fmt: skip
SLOW = Variable(
    "slow", ("RANKLAUNCH_SLOW",), slow, 2.0, "factor by which steps must take longer than before for the job to be reported as slow; 0: "
    "nothing is reported", option="--slow",
)  # fmt: skip

# Tools that hear of the job


def words(text: str) -> tuple[str, ...]:
    """Words of a command, split as a shell does; no shell sees them."""
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
    "trainjob_status", ("RANKLAUNCH_TRAINJOB_STATUS",), parse.flag, False, "node 0 tells the status of its TrainJob how many steps are "
    "done, where Kubeflow Trainer names a server for that; for programs that do not do so", option="--trainjob-status", is_switch=True,
)  # fmt: skip

# Restarts in place


def codes(value: str) -> tuple[int, ...]:
    """Exit codes with commas between them."""
    words = [word.strip() for word in value.split(",") if word.strip()]
    numbers = [number(word) for word in words]
    if not all(code and code < 256 for code in numbers):
        msg = "expected exit codes from 1 to 255, with commas between them"
        raise ValueError(msg)
    return tuple(code for code in numbers if code)


def patterns(value: str) -> tuple[str, ...]:
    """Patterns of paths with colons between them."""
    if "\0" in value:
        msg = "expected paths with colons between them"
        raise ValueError(msg)
    return parse.paths(value)


NO_RESTART_CODES: Variable[tuple[int, ...]] = Variable(
    "no_restart_codes", ("RANKLAUNCH_NO_RESTART_CODES",), codes, (), "exit codes after which ranks are not started again in place, with "
    "commas between them; 2, 69 and 78 are among them in any case",
)  # fmt: skip
PROGRESS_FILE: Variable[tuple[str, ...]] = Variable(
    "progress_file", ("RANKLAUNCH_PROGRESS_FILE",), patterns, (), "markers of the trainer's checkpoints, by which restarts in place tell "
    "progress, and a stop whether it was saved: paths with wildcards, with colons between them (/ckpt/latest, /ckpt/checkpoint-*)",
)  # fmt: skip

# Requests to save

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

# Trust in a program's own account of its success

WHOLE, PROGRAM = "whole", "program"
WAIT, KILL = "wait", "kill"
ALLOW = "allow"

EXIT = Variable(
    "exit", ("RANKLAUNCH_EXIT",), parse.OneOf(WHOLE, PROGRAM), WHOLE, "what decides on success: whole (the exit status of the program, of "
    "launchers whose failure its shell hid, and of ranks that it left at work) or program (its exit status alone)",
)  # fmt: skip
LEFT_RANKS = Variable(
    "left_ranks", ("RANKLAUNCH_LEFT_RANKS",), parse.OneOf(WAIT, KILL), WAIT, "wait for ranks that a program leaves at work when it ends "
    "with 0, or kill them",
)  # fmt: skip
ALONE_S = Variable(
    "alone_s", ("RANKLAUNCH_ALONE_S",), parse.seconds, 60.0, "seconds after which a launcher whose ranks work alone on one of several "
    "nodes ends the job",
)  # fmt: skip
EACH_NODE_ALONE = Variable(
    "each_node_alone", ("RANKLAUNCH_EACH_NODE_ALONE",), parse.flag, False, "let the ranks of each of several nodes work alone",
)  # fmt: skip
NESTED = Variable(
    "nested", ("RANKLAUNCH_NESTED",), parse.OneOf(STOP, ALLOW), STOP, "what becomes of a job whose ranks start ranks of their own on the "
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
    "check_format", ("RANKLAUNCH_CHECK_FORMAT",), parse.OneOf("text", "json"), "text", "how check shows: text for people, json for tools",
    option="--format",
)  # fmt: skip

CHECK_VARIABLES: Table = (CHECK_FORMAT,)  # of the command check alone
