"""DeepSpeed's options and its files of variables.

Options are read as its parser of Python's argparse reads them: abbreviations, short forms, values behind = or in the next word.

Those for elastic training are refused where its agents cannot start.
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


# Elastic training: on each node an agent of DeepSpeed's own, made of PyTorch's, that starts the node's ranks anew by itself. DeepSpeed had
# it up to 0.19; newer ones refuse its options by themselves.
ELASTIC, LEAST, MOST = "--elastic_training", "--min_elastic_nodes", "--max_elastic_nodes"


def judge_elastic(job: Job, reader: Reader, extra: Sequence[str], source: str, *, hands_on: bool) -> None:
    """Refuse elastic training that its agents cannot start on these nodes. hands_on: a runner on node 0 passes the option to the others."""
    values, _, _ = PARSER.read(extra)
    if ELASTIC not in values:
        return
    has = f"{source} has {ELASTIC}"
    nodes = len(job.nodes)
    # None for DeepSpeed's default (-1), and for what is no number, which it refuses by itself.
    least, most = (number(values.get(name, "")) or nodes for name in (LEAST, MOST))
    if least > nodes:
        reader.problem(f"{has}: {LEAST} {least}: expected at most {nodes}, the nodes of this job, or its agents would wait for more")
    if most < nodes:
        reader.problem(f"{has}: {MOST} {most}: expected at least {nodes}, the nodes of this job, of which the others would wait in vain")
    if not hands_on:
        reader.problem(f"{has}: DeepSpeed hands it on by pdsh alone; use no_ssh or pdsh")
    waits = f"; it could do with fewer nodes, but the muster waits for all {nodes}, and a lost node ends the job" if nodes > 1 else ""
    restarts = "DeepSpeed's agent starts a failed rank's node anew by itself, up to 100 times, and ends with 0 when it has given up"
    reader.warn(f"{has}: {restarts}{waits}")


# Variables for the ranks of several nodes in files of the user's: .deepspeed_env in the home folder and in the working folder, or what
# DS_ENV_FILE calls it. DeepSpeed reads them only where its runner reaches the nodes; here they count wherever there are several.

ENV_FILE = Variable(
    "deepspeed_env", ("DS_ENV_FILE",), parse.text, ".deepspeed_env",
    "name of files with variables for the ranks of several nodes, NAME=VALUE lines: in the home folder, then in the working folder",
    per_node=True,
)  # fmt: skip
_ENV_LINE = r"\s*(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)\s*=(?P<value>.*)|#.*)?"  # without a name: nothing, or a comment
_QUOTED = r"""'(?P<as_is>[^']*)'|"(?P<text>(?:[^"\\]|\\.)*)\""""  # the whole of a value
_SPECIAL = r"""(["\\$`])"""  # between double quotes of a shell
_REFERENCE = r"""\\(?P<escaped>["\\$`])|\$(?P<brace>\{)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?(brace)\})"""


def read_env_files(job: Job, reader: Reader) -> dict[str, str]:
    """Return the variables of several nodes' ranks, each as it would stand between double quotes of a shell.

    The working folder's file comes after the home folder's."""
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
    """Take off the quotes around a whole value: a shell does so behind DeepSpeed's pdsh. Single quotes keep `$` as it is."""
    parts = re.fullmatch(_QUOTED, value)
    if not parts:
        return value
    return parts["text"] if parts["as_is"] is None else escaped(parts["as_is"])


def escaped(value: str) -> str:
    """Return the text for double quotes of a shell that gives this value."""
    return re.sub(_SPECIAL, r"\\\1", value)


def expanded(values: Mapping[str, str], env: Mapping[str, str]) -> dict[str, str]:
    """Replace the variables that values name, and take off backslashes, as the shell does by which DeepSpeed hands them over."""
    known = dict(env)
    for name, value in values.items():
        known[name] = re.sub(_REFERENCE, lambda match: match["escaped"] or known.get(match["name"], ""), value)
    return {name: known[name] for name in values}
