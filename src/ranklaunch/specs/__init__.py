"""A job's specification in the form of the engine that runs it."""

from __future__ import annotations

from ranklaunch.render.templates import Templates
from ranklaunch.specs.model import BY_SCRIPT, OF_CLOUDS, JobSpec
from ranklaunch.specs.shape import shape

FILES = {
    "modelarts": "jobs/modelarts.json.j2", "aws_batch": "jobs/aws_batch.json.j2", **dict.fromkeys(OF_CLOUDS[:-1], "jobs/task.yaml.j2"),
    **{kind: f"jobs/{kind}.sh.j2" for kind in ("slurm", *BY_SCRIPT)},
}  # fmt: skip


def rendered(spec: JobSpec, templates: Templates) -> str:
    """Return the text of a correct specification, in the form of its engine."""
    return templates.text(FILES.get(spec.engine, f"jobs/{spec.engine}.yaml.j2"), **shape(spec)).rstrip("\n") + "\n"
