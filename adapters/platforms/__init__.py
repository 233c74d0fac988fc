"""The platforms, in the order in which they are asked whether an environment is theirs."""

from __future__ import annotations

from typing import Protocol

from ranklaunch.adapters.platforms import (
    ascend_operator,
    indexed_job,
    jobset,
    kubeflow_trainer,
    local,
    modelarts,
    mpijob,
    volcano,
)
from ranklaunch.errors import ConfigError, nearest
from ranklaunch.job import Job, Program
from ranklaunch.reading import PLATFORM
from ranklaunch.settings import Reader, Variable


class Platform(Protocol):
    """What a module in this folder offers. VARIABLES: every variable it reads beyond those of ranklaunch.reading."""

    NAME: str
    VARIABLES: tuple[Variable[object], ...]

    def detect(self, reader: Reader) -> bool:
        """Whether the environment is this platform's. Never raises."""
        ...

    def attempt(self, reader: Reader) -> int:
        """Which start of the job on this node it is, from 1."""
        ...

    def read(self, reader: Reader, program: Program) -> Job:
        """The job. Problems go to the reader, which raises them all at once afterwards."""
        ...


PLATFORMS: dict[str, Platform] = {
    # A job of ModelArts is a Volcano job with more, and has its variables and files too.
    modelarts.NAME: modelarts,
    # The Ascend Operator serves Volcano's jobs as well, whose own variables tell more.
    volcano.NAME: volcano,
    ascend_operator.NAME: ascend_operator,
    mpijob.NAME: mpijob,
    # A TrainJob is a JobSet, and a JobSet is made of Indexed Jobs: all have JOB_COMPLETION_INDEX, so the outermost is asked first.
    kubeflow_trainer.NAME: kubeflow_trainer,
    jobset.NAME: jobset,
    indexed_job.NAME: indexed_job,
    # Recognises everything, so it is asked last.
    local.NAME: local,
}


def choose(reader: Reader) -> Platform:
    given = reader.get(PLATFORM).strip().lower()
    if given:
        if given not in PLATFORMS:
            reading = reader.reading(PLATFORM.value)
            source = reading.source if reading else PLATFORM.names[0]
            msg = f"{source}={given!r}: expected one of {', '.join(PLATFORMS)}{nearest(given, PLATFORMS)}"
            raise ConfigError(msg)
        return PLATFORMS[given]
    found = next(platform for platform in PLATFORMS.values() if platform.detect(reader))
    reader.note(PLATFORM.value, found.NAME, "environment")
    return found
