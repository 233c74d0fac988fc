"""What a specification may say and what its author should know of it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from ranklaunch.redact import argv, environment
from ranklaunch.specs.model import JobSpec
from ranklaunch.specs.pod import has_several_nodes, own_key

# Options of sbatch by which a task gets more CPUs than one.
MORE_CPUS = ("--cpus-per-task", "--cpus-per-gpu", "--tres-per-task", "--exclusive")


def warnings(spec: JobSpec) -> Iterator[str]:
    further = {str(each["name"]): str(each["value"]) for each in spec.extra_env if each.get("value")}
    for place, given in (("env.", spec.env), ("extraEnv: ", further)):
        shown = environment(given)
        for name in sorted(name for name, value in given.items() if shown[name] != value):
            yield f"{place}{name} stands in the specification for all to read; a Secret in envFrom or extraEnv does not"
    hidden = argv(spec.args)
    if hidden != spec.args:
        yield f"args hold a secret for all to read ({shlex.join(hidden)}); a variable from a Secret in envFrom does not"
    if spec.engine == "modelarts" and has_several_nodes(spec) and not own_key(spec):
        yield (
            "the key of the muster is derived from the job's name, which others may guess: put one into a file that all nodes see, and its "
            "path into env.RANKLAUNCH_SECRET_FILE"
        )
    if spec.engine == "slurm" and spec.devices_per_node > 1 and not _asks_for_cpus(spec):
        yield (
            f"resources.cpu is not set: Slurm gives a task, here all {spec.devices_per_node} ranks of a node, one CPU, unless the cluster "
            'gives more by itself; set it (--cpu), or slurm.directives=["--exclusive"]'
        )


def _asks_for_cpus(spec: JobSpec) -> bool:
    return bool(spec.resources.cpu) or any(directive.partition("=")[0] in MORE_CPUS for directive in spec.slurm.directives)
