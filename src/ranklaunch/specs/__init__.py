"""A job's specification in the form of the engine that runs it."""

from __future__ import annotations

from ranklaunch.render.templates import Templates
from ranklaunch.specs.model import JobSpec
from ranklaunch.specs.shape import shape

FILES = {"modelarts": "jobs/modelarts.json.j2", "slurm": "jobs/slurm.sh.j2"}


def rendered(spec: JobSpec, templates: Templates) -> str:
    """The text of a specification that nothing is wrong with."""
    return templates.text(FILES.get(spec.engine, f"jobs/{spec.engine}.yaml.j2"), **shape(spec)).rstrip("\n") + "\n"
