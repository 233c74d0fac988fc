"""DeepSpeed's options and its files of variables.

Options are read as Python's argparse reads them: abbreviations, short forms, values after = or in the next word. Options for elastic
training are refused if DeepSpeed's agents could not start.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ranklaunch import showing
from ranklaunch.adapters.launchers.shared import user_options
from ranklaunch.env import parse
from ranklaunch.env.job import Job
from ranklaunch.env.reader import Reader, Variable
from ranklaunch.errors import number
from ranklaunch.files import absolute

PARSER = user_options.DEEPSPEED


# Elastic training: on each node an agent of DeepSpeed (based on PyTorch's) restarts the node's ranks by itself. DeepSpeed has it up to
# 0.19; newer versions refuse its options themselves.
ELASTIC, LEAST, MOST = "--elastic_training", "--min_elastic_nodes", "--max_elastic_nodes"


def judge_elastic(job: Job, reader: Reader, extra: Sequence[str], source: str, *, hands_on: bool) -> None:
    """Refuse elastic training whose agents could not start on these nodes. hands_on: the runner passes the option on to launch.py."""
    values, _, _ = PARSER.read(extra)
    if ELASTIC not in values:
        return
    has = f"{source} has {ELASTIC}"
    nodes = len(job.nodes)
    # number() is None for DeepSpeed's default (-1), and for text that DeepSpeed itself refuses.
    least, most = (number(values.get(name, "")) or nodes for name in (LEAST, MOST))
    if least > nodes:
        reader.problem(f"{has}: {LEAST} {least}: expected at most {nodes}, the nodes of this job, or the agents would wait for more")
    if most < nodes:
        reader.problem(f"{has}: {MOST} {most}: expected at least {nodes}, the nodes of this job, or the remaining nodes would wait forever")
    if not hands_on:
        reader.problem(f"{has}: DeepSpeed passes it to the nodes only with pdsh; use no_ssh or pdsh")
    waits = (
        f"; DeepSpeed could run with fewer nodes, but the muster waits for all {nodes}, and a lost node ends the job" if nodes > 1 else ""
    )
    restarts = "DeepSpeed's agent restarts the ranks of a node after a failure, up to 100 times, and exits with 0 when it gives up"
    reader.warn(f"{has}: {restarts}{waits}")


# The user's files with variables for the ranks of several nodes: .deepspeed_env (or the name in DS_ENV_FILE) in the home folder and in the
# working folder. DeepSpeed reads them only with a runner on node 0; ranklaunch reads them for every job of several nodes.

ENV_FILE = Variable(
    "deepspeed_env", ("DS_ENV_FILE",), parse.text, ".deepspeed_env",
    "name of files with variables for the ranks of several nodes, NAME=VALUE lines: in the home folder, then in the working folder",
    per_node=True,
)  # fmt: skip
_ENV_LINE = r"\s*(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)\s*=(?P<value>.*)|#.*)?"  # without a name: an empty line or a comment
_QUOTED = r"""'(?P<as_is>[^']*)'|"(?P<text>(?:[^"\\]|\\.)*)\""""  # quotes around the whole value
_SPECIAL = r"""(["\\$`])"""  # characters that a shell expands between double quotes
_REFERENCE = r"""\\(?P<escaped>["\\$`])|\$(?P<brace>\{)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?(brace)\})"""


def read_env_files(job: Job, reader: Reader) -> dict[str, str]:
    """Return the variables of the user's files, each value as text between double quotes of a shell; {} for a job of one node.

    A value in the working folder's file replaces the one in the home folder's file.
    """
    if not job.has_peers:
        return {}
    name = next((candidate.value for candidate in reader.candidates(ENV_FILE)), ENV_FILE.default)
    home = reader.env.get("HOME") or reader.account.home
    merged: dict[str, str] = {}
    sources = []
    for folder in (home, job.folder):
        path = absolute(name, reader.absolute(folder))
        text = reader.text(path)
        if text and path not in sources:
            sources.append(path)
        for at, line in enumerate(text.splitlines(), 1):
            parts = re.fullmatch(_ENV_LINE, line)
            if not parts:
                reader.problem(f"{path}, line {at}: expected NAME=VALUE, found {showing.begun(line.strip())}")
            elif parts["name"]:
                merged[parts["name"]] = _unquoted(parts["value"].strip())
    if merged:
        reader.note(ENV_FILE, ", ".join(merged), ", then ".join(sources))
    return merged


def _unquoted(value: str) -> str:
    """Remove quotes around a whole value, as the shell after DeepSpeed's pdsh does. In single quotes, `$` is kept as text."""
    parts = re.fullmatch(_QUOTED, value)
    if not parts:
        return value
    return parts["text"] if parts["as_is"] is None else escaped(parts["as_is"])


def escaped(value: str) -> str:
    """Return the value escaped for double quotes of a shell."""
    return re.sub(_SPECIAL, r"\\\1", value)


def expanded(values: Mapping[str, str], env: Mapping[str, str]) -> dict[str, str]:
    """Expand variables and backslashes in values, as the shell does through which DeepSpeed passes them on."""
    known = dict(env)
    for name, value in values.items():
        known[name] = re.sub(_REFERENCE, lambda match: match["escaped"] or known.get(match["name"], ""), value)
    return {name: known[name] for name in values}
