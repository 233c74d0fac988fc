"""What tools are told of a job, and in which form. Few ask for it, so a start imports this where one does."""

from __future__ import annotations

import shlex

from ranklaunch.env import parse
from ranklaunch.env.reader import Variable


def words(text: str) -> tuple[str, ...]:
    """Of a command, as a shell tells them apart; no shell sees them."""
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
VARIABLES: tuple[Variable[object], ...] = (METRICS_FILE, ON_EVENT, TRAINJOB_STATUS)

CHECK_FORMAT = Variable(
    "check_format", ("RANKLAUNCH_CHECK_FORMAT",), parse.OneOf("text", "json"), "text", "how check shows: text for people, json for tools",
    option="--format",
)  # fmt: skip

CHECK_VARIABLES: tuple[Variable[object], ...] = (CHECK_FORMAT,)  # of the command check alone
