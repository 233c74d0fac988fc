"""Text of --help: options in groups, with their defaults, the methods, and examples."""

from __future__ import annotations

import argparse  # for the layout of help only: slow to import, and slow as a parser
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from ranklaunch.adapters.launchers import LAUNCHERS, launcher

# Options of a job by group. An option in no group belongs to some methods, or to the command.
GROUPS: dict[str, tuple[str, ...]] = {
    "the job": (
        "--method", "--nodes", "--slots", "--node", "--hosts", "--master-addr", "--job-name", "--attempt", "--accelerator", "--python",
        "--platform", "--rank-table", "--task", "--ps-hosts", "--worker-hosts",
    ),
    "files": ("--log-dir", "--log-tag", "--templates", "--known-errors", "--env-file", "--root"),
    "times": ("--wait-s", "--grace-s", "--end-timeout-s", "--lost-after-s"),
    "the console": ("--console", "--console-merge", "--console-max", "--console-victims"),
    "saving": ("--save-signal", "--save-file"),
    "before the launch": ("--pass", "--pre-start", "--once", "--same", "--muster", "--muster-port", "--muster-timeout-s", "--muster-allow"),
    "before a rank": ("--bind", "--bind-cores", "--rank-prefix", "--debugpy", "--debugpy-host", "--debugpy-wait", "--debug"),
}  # fmt: skip
EXAMPLES: dict[str, tuple[str, ...]] = {
    "run": (
        "ranklaunch run train.py --epochs 3                      nodes and ranks from the platform's variables",
        "ranklaunch run --method spawn --slots 2 -m pkg.train    two ranks on this machine",
        "ranklaunch run --nodes 2 --node 0 --slots 8 --master-addr 192.0.2.10 train.py    node 0 of two, without a platform",
    ),
    "plan": (
        "ranklaunch plan train.py                                show what run would do here, and why",
        "ranklaunch plan --env-file job.env --all-nodes train.py    another container's job, every node",
        "ranklaunch plan --spec job.json --all-nodes             a job from `ranklaunch spec modelarts`",
        "ranklaunch plan --slurm nodes=4,gpus=8 train.py         on a login node, as in such an allocation of Slurm",
        "ranklaunch plan --format sh train.py > by-hand.sh       a script that starts the same processes",
    ),
    "check": ("ranklaunch check train.py", "ranklaunch check                   all but the program"),
    "explain": ("ranklaunch explain rank_3.log", "kubectl logs POD | ranklaunch explain -"),
    "logs": (
        "ranklaunch logs --follow                                from a shell in a container of the job",
        "ranklaunch logs runs/copied --rank 0,8-15 --grep Error  a log folder, or a copy of one",
    ),
    "simulate": ("ranklaunch simulate --nodes 2 --slots 2 -- train.py",),
    "tune": (
        'ranklaunch tune train.py --deepspeed_config ds.json     find values for "auto" in ds.json',
        "ranklaunch tune --dry-run train.py --deepspeed_config ds.json    show the trials in their order",
        "ranklaunch tune --tuner model_based --max-trials 20 --run train.py --deepspeed_config ds.json    then train with the best",
    ),
}


class Option(Protocol):
    """Option of ranklaunch.cli.options, which imports this module."""

    @property
    def name(self) -> str: ...
    @property
    def meaning(self) -> str: ...
    @property
    def takes(self) -> str: ...
    @property
    def may_take(self) -> str: ...


def text(command: str, description: str, usage: str, options: Iterable[Option], of_command: Sequence[str], of_job: bool) -> str:
    """Return the help of a command. of_command: names of options that only this command has. of_job: True for a command for a job."""
    parser = argparse.ArgumentParser(
        prog=f"ranklaunch {command}", description=description, usage=usage, epilog=_epilog(command, of_job),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    groups = _grouped(options, of_command) if of_job else {"": list(options)}
    for title, of_group in groups.items():
        group: Any = parser.add_argument_group(title) if title else parser
        for option in of_group:
            takes = option.takes or option.may_take
            how: dict[str, Any] = {"metavar": takes} if takes else {"action": "store_true"}
            group.add_argument(option.name, help=option.meaning.replace("%", "%%"), **how)
    return parser.format_help().rstrip()


def _grouped(options: Iterable[Option], of_command: Sequence[str]) -> Mapping[str, Sequence[Option]]:
    remaining = {option.name: option for option in options}
    own = {"of this command": tuple(of_command)} if of_command else {}
    groups = {title: [remaining.pop(name) for name in names if name in remaining] for title, names in {**own, **GROUPS}.items()}
    return {**groups, "of some methods": list(remaining.values())}


def _epilog(command: str, of_job: bool) -> str:
    examples = [f"  {line}" for line in EXAMPLES.get(command, ())]
    return "\n".join([*(_methods() if of_job else ()), *(["examples:", *examples] if examples else [])])


def _methods() -> list[str]:
    """Return the lines about methods: each name with the first sentence of its module's docstring."""
    lines = []
    for name in LAUNCHERS:
        first = " ".join((launcher(name).__doc__ or "").split()).partition(". ")[0].rstrip(".")
        lines += textwrap.wrap(first, 100, initial_indent=f"  {name:12}", subsequent_indent=" " * 14)
    return ["methods:", *lines, ""]
