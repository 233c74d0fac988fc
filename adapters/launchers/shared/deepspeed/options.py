"""DeepSpeed's options, as its parser of Python's argparse reads them: abbreviations, short forms, values behind = or in the next word.

Those for elastic training are refused where its agents cannot start.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from ranklaunch.adapters.launchers.shared import words
from ranklaunch.errors import number
from ranklaunch.read.job import Job
from ranklaunch.read.reader import Reader
from ranklaunch.typed import NamedTuple

SHORT = {"-h": "--help", "-H": "--hostfile", "-i": "--include", "-e": "--exclude", "-q": "--quiet"}
_WITH_VALUE = """
    --hostfile --include --exclude --num_nodes --num_gpus --num_accelerators --min_elastic_nodes --max_elastic_nodes --master_port
    --master_addr --node_rank --launcher --launcher_args --enable_each_rank_log --autotuning --bind_core_list --ssh_port --venv_script
    --log_level --slurm_comment
"""
_SWITCHES = """
    --module --no_python --no_local_rank --no_ssh --no_ssh_check --force_multi --save_pid --bind_cores_to_rank --quiet --elastic_training
    --detect_nvlink_pairs --help
"""
PARSER = words.Parser(tuple(_WITH_VALUE.split()), tuple(_SWITCHES.split()), SHORT)
spelled = PARSER.spelled


class Option(NamedTuple):
    """An option with its value. name: whole and long; of a word that is no option, its beginning. words: as they were written."""

    name: str
    value: str
    words: tuple[str, ...]


def parsed(given: Iterable[str]) -> tuple[Option, ...]:
    found = []
    rest = iter(given)
    for word in rest:
        written, equals, value = word.partition("=")
        if word[:2] in SHORT and len(word) > len("-i"):
            written, equals, value = word[:2], "=", word[2:].lstrip("=")
        name = spelled(written)
        following = tuple(islice(rest, 1)) if name in PARSER.with_value and not equals else ()
        found.append(Option(name, value + "".join(following), (word, *following)))
    return tuple(found)


def values(options: Iterable[Option], *names: str) -> list[str]:
    """Return the values of these options in their order: the last counts."""
    return [option.value for option in options if option.name in names]


def without(options: Iterable[Option], names: Iterable[str]) -> tuple[str, ...]:
    """Return the words of all options but these."""
    return tuple(word for option in options if option.name not in names for word in option.words)


# Elastic training: on each node an agent of DeepSpeed's own, made of PyTorch's, that starts the node's ranks anew by itself. DeepSpeed had
# it up to 0.19; newer ones know none of its options.
_RUNNER = "deepspeed/launcher/runner.py"  # of DeepSpeed as it is installed
ELASTIC, LEAST, MOST = "--elastic_training", "--min_elastic_nodes", "--max_elastic_nodes"


def judge_elastic(job: Job, reader: Reader, extra: Sequence[Option], source: str, *, hands_on: bool) -> None:
    """Refuse elastic training that its agents cannot start on these nodes. hands_on: a runner on node 0 passes the option to the others."""
    given = {option.name: option.value for option in extra}  # the last counts
    if ELASTIC not in given:
        for name in (LEAST, MOST):
            if name in given:
                reader.warn(f"{source} has {name}, which has no effect without {ELASTIC}")
        return
    from ranklaunch.plan import facts  # which one node alone does without

    has = f"{source} has {ELASTIC}"
    nodes = len(job.nodes)
    # None for DeepSpeed's default (-1), and for what is no number, which it refuses by itself.
    least, most = number(given.get(LEAST, "")) or nodes, number(given.get(MOST, "")) or nodes
    if least > nodes:
        reader.problem(f"{has}: {LEAST} {least}: expected at most {nodes}, the nodes of this job, or its agents would wait for more")
    if most < nodes:
        reader.problem(f"{has}: {MOST} {most}: expected at least {nodes}, the nodes of this job, of which the others would wait in vain")
    if not hands_on:
        reader.problem(f"{has}: DeepSpeed hands it on by pdsh alone; use no_ssh or pdsh")
    if ELASTIC not in (facts.source(_RUNNER, job, reader.files, reader.env, reader.cwd) or ELASTIC):
        reader.problem(f"{has}: the DeepSpeed that is installed has no elastic training any more: use an older one, or leave it out")
    waits = f"; it could do with fewer nodes, but the muster waits for all {nodes}, and a lost node ends the job" if nodes > 1 else ""
    restarts = "DeepSpeed's agent starts a failed rank's node anew by itself, up to 100 times, and ends with 0 when it has given up"
    reader.warn(f"{has}: {restarts}{waits}")
