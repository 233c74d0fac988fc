"""DeepSpeed's elastic training: on each node an agent of its own, made of PyTorch's, that starts the node's ranks anew by itself. DeepSpeed
had it up to 0.19; newer ones know none of its options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ranklaunch.adapters.launchers.shared.deepspeed.options import Option
from ranklaunch.errors import number
from ranklaunch.read.job import Job
from ranklaunch.read.reader import Reader

_RUNNER = "deepspeed/launcher/runner.py"  # of DeepSpeed as it is installed
ON, LEAST, MOST = "--elastic_training", "--min_elastic_nodes", "--max_elastic_nodes"


def judge(job: Job, reader: Reader, extra: Sequence[Option], source: str, *, hands_on: bool) -> None:
    """Refuse elastic training that its agents cannot start on these nodes. hands_on: a runner on node 0 passes the option to the others."""
    given = {option.name: option.value for option in extra}  # the last counts
    if ON not in given:
        for name in (LEAST, MOST):
            if name in given:
                reader.warn(f"{source} has {name}, which has no effect without {ON}")
        return
    nodes = len(job.nodes)
    for problem in _problems(job, reader, given, hands_on):
        reader.problem(f"{source} has {ON}: {problem}")
    waits = f"; it could do with fewer nodes, but the muster waits for all {nodes}, and a lost node ends the job" if nodes > 1 else ""
    restarts = "DeepSpeed's agent starts a failed rank's node anew by itself, up to 100 times, and ends with 0 when it has given up"
    reader.warn(f"{source} has {ON}: {restarts}{waits}")


def _problems(job: Job, reader: Reader, given: Mapping[str, str], hands_on: bool) -> Iterator[str]:
    from ranklaunch.plan import facts  # which one node alone does without

    nodes = len(job.nodes)
    # None for DeepSpeed's default (-1), and for what is no number, which it refuses by itself.
    least, most = number(given.get(LEAST, "")) or nodes, number(given.get(MOST, "")) or nodes
    if least > nodes:
        yield f"{LEAST} {least}: expected at most {nodes}, the nodes of this job, or its agents would wait for more"
    if most < nodes:
        yield f"{MOST} {most}: expected at least {nodes}, the nodes of this job, of which the others would wait in vain"
    if not hands_on:
        yield "DeepSpeed hands it on by pdsh alone; use no_ssh or pdsh"
    installed = facts.source(_RUNNER, job, reader.files, reader.env, reader.cwd)
    if installed and ON not in installed:
        yield "the DeepSpeed that is installed has no elastic training any more: use an older one, or leave it out"
