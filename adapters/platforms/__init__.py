"""The platforms, in the order in which they are asked whether an environment is theirs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ranklaunch.adapters.platforms import local, modelarts, openpai, pai_dlc, sagemaker, slurm, vertexai, volcengine
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
    # Its containers may have anything in them.
    modelarts.NAME: modelarts,
    # Before those whose containers its daemons may run in: what srun starts belongs to Slurm.
    slurm.NAME: slurm,
    # None of these knows another's variables.
    sagemaker.NAME: sagemaker,
    volcengine.NAME: volcengine,
    openpai.NAME: openpai,
    vertexai.NAME: vertexai,
    # RANK and WORLD_SIZE mean something else where operators of Kubernetes set them.
    pai_dlc.NAME: pai_dlc,
    # Recognises everything, so it is asked last.
    local.NAME: local,
}

# What only some have: a program to run where the command line names none, and a file for the reason of a failure.
PROGRAMS: dict[str, Callable[[Reader, Sequence[str]], Program | None]] = {sagemaker.NAME: sagemaker.program}
FAILURE_FILES: dict[str, Callable[[Reader], str]] = {sagemaker.NAME: sagemaker.failure_file}


def program(reader: Reader, words: Sequence[str]) -> Program | None:
    """What the platform says should run, where it does and the words of the command line say no other."""
    find = PROGRAMS.get(_recognised(reader))
    return find(reader, words) if find else None


def failure_file(reader: Reader) -> str:
    """Where the platform looks for the reason of a failure, "" where it does not."""
    find = FAILURE_FILES.get(_recognised(reader))
    return find(reader) if find else ""


def _recognised(reader: Reader) -> str:
    """The name of the platform; of one that is not there, as it was given."""
    return reader.get(PLATFORM).strip().lower() or next(name for name, platform in PLATFORMS.items() if platform.detect(reader))


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
