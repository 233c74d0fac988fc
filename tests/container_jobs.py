"""Containers of one test, started as ModelArts starts them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from testbench.containers import docker
from testbench.containers.docker import TMP, Image, Volume
from testbench.jobs.job import Job
from testbench.jobs.processes import MARK, Family
from testbench.jobs.streams import Stream

HOME = "/home/ma-user"
LOGS = f"{HOME}/modelarts/log"
CODE = f"{HOME}/modelarts/user-job-dir/code"
# What ModelArts sets for a job of one node with two devices.
MODELARTS = {
    "MA_NUM_HOSTS": "1",
    "MA_NUM_GPUS": "2",
    "MA_VJ_NAME": "modelarts-job-6c1f",
    "MA_TASK_NAME": "worker",
    "VC_TASK_INDEX": "0",
    "MA_HOME": HOME,
    "MA_MOUNT_PATH": f"{HOME}/modelarts",
    "MA_JOB_DIR": f"{HOME}/modelarts/user-job-dir",
    "MA_LOG_DIR": LOGS,
    "MA_RUN_METHOD": "spawn",
    "RANKLAUNCH_ACCELERATOR": "cpu",
}


class Containers:
    """Starts containers of one test: the layout of ModelArts, a read-only root, a user without rights."""

    def __init__(self, image: Image, folder: Path) -> None:
        self.image = image
        self.code = folder / "code"
        self.logs = folder / "logs"
        self.code.mkdir()
        self.logs.mkdir()
        shutil.chown(self.logs, 1000, 100)
        self.family = Family()
        self.jobs: list[Job] = []

    def run(self, *words: str, env: Mapping[str, str] | None = None) -> Job:
        """The image's ENTRYPOINT, with these words after it."""
        return self.start(*self.image.entrypoint, *words, env=env)

    def start(self, *command: str, env: Mapping[str, str] | None = None) -> Job:
        """A command in place of the image's ENTRYPOINT."""
        volumes = [TMP, Volume(HOME), Volume(LOGS, self.logs), Volume(CODE, self.code)]
        popen = docker.start(self.image, command, {**MODELARTS, MARK: self.family.mark, **(env or {})}, volumes)
        job = Job(popen, self.family, self.logs, True, [_stream(popen.stdout), _stream(popen.stderr)])
        self.jobs.append(job)
        return job

    def clean_up(self) -> str:
        left = self.family.describe() if self.family.members() else ""
        self.family.kill()
        for job in self.jobs:
            job.popen.wait()
        return left


def _stream(pipe: IO[bytes] | None) -> Stream:
    assert pipe
    with pipe:
        return Stream(os.dup(pipe.fileno()))
