"""DeepSpeed's elastic training: on each node an agent of its own, made of PyTorch's, that starts the node's ranks anew by itself. DeepSpeed
had it up to 0.19; newer ones know none of its options."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ranklaunch.adapters.launchers.shared.deepspeed import options
from ranklaunch.adapters.launchers.shared.deepspeed.options import Option
from ranklaunch.read.job import Job
from ranklaunch.read.reader import Reader

ON, LEAST, MOST = "--elastic_training", "--min_elastic_nodes", "--max_elastic_nodes"
OPTIONS = (ON, LEAST, MOST)
_RUNNER = "deepspeed/launcher/runner.py"  # of DeepSpeed as it is installed


def is_on(extra: Sequence[Option]) -> bool:
    return any(option.name == ON for option in extra)


def judge(job: Job, reader: Reader, extra: Sequence[Option], source: str, *, hands_on: bool) -> None:
    """Whether its agents can start on these nodes. hands_on: where the runner starts them on other nodes too, it tells them of it."""
    if not is_on(extra):
        for name in (LEAST, MOST):
            if options.values(extra, name):
                reader.warn(f"{source} has {name}, which has no effect without {ON}")
        return
    for problem in _problems(job, reader, extra, hands_on):
        reader.problem(f"{source} has {ON}: {problem}")
    told = "DeepSpeed's agent starts a failed rank's node anew by itself, up to 100 times"
    nodes = len(job.nodes)
    waits = f"; it could do with fewer nodes, but the muster waits for all {nodes}, and a lost node ends the job" if nodes > 1 else ""
    reader.warn(f"{source} has {ON}: {told}, and ends with 0 when it has given up{waits}")


def _problems(job: Job, reader: Reader, extra: Sequence[Option], hands_on: bool) -> list[str]:
    nodes, least, most = len(job.nodes), _number(extra, LEAST), _number(extra, MOST)
    found = []
    if least is not None and least > nodes:
        found.append(f"{LEAST} {least}: expected at most {nodes}, the nodes of this job, or its agents would wait for more")
    if most is not None and most < nodes:
        found.append(f"{MOST} {most}: expected at least {nodes}, the nodes of this job, of which the others would wait in vain")
    if not hands_on:
        found.append("DeepSpeed hands it on by pdsh alone; use no_ssh or pdsh")
    if "--no_local_rank" in [option.name for option in extra]:
        found.append("DeepSpeed refuses it beside --no_local_rank, which it needs no more")
    if _is_gone(job, reader):
        found.append("the DeepSpeed that is installed has no elastic training any more: use an older one, or leave it out")
    return found


def _number(extra: Sequence[Option], name: str) -> int | None:
    """None for DeepSpeed's default (-1), and for what is no number, which it refuses by itself."""
    text = "".join(options.values(extra, name)[-1:])
    return int(text) if re.fullmatch("[0-9]{1,9}", text) else None


def _is_gone(job: Job, reader: Reader) -> bool:
    from ranklaunch.plan import facts  # which one node alone does without

    text = facts.source(_RUNNER, job, reader.files, reader.env, reader.cwd)
    return bool(text) and ON not in text
