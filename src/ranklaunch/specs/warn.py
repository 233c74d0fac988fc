"""What a specification may say and what its author should know of it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from ranklaunch.redact import argv, environment
from ranklaunch.specs import slurm
from ranklaunch.specs.model import JobSpec
from ranklaunch.specs.pod import has_several_nodes, own_key


def warnings(spec: JobSpec) -> Iterator[str]:
    shown = environment(spec.env)
    for name in sorted(name for name, value in spec.env.items() if shown[name] != value):
        yield f"env.{name} stands in the specification for all to read; a Secret in envFrom does not"
    hidden = argv(spec.args)
    if hidden != spec.args:
        yield f"args hold a secret for all to read ({shlex.join(hidden)}); a variable from a Secret in envFrom does not"
    if spec.engine == "modelarts" and has_several_nodes(spec) and not own_key(spec):
        yield (
            "the key of the muster is derived from the job's name, which others may guess: put one into a file that all nodes see, and its "
            "path into env.RANKLAUNCH_SECRET_FILE"
        )
    if spec.engine == "slurm":
        yield from slurm.warnings(spec)
