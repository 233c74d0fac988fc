"""Submission of a job's specification to its platform, by the platform's own command-line program."""

from __future__ import annotations

import os
import shutil
import subprocess  # noqa: TID251 - commands other than run start processes here
from collections.abc import Mapping

from ranklaunch.errors import ConfigError, MissingProgramError

COMMANDS = {"slurm": ["sbatch"], "lsf": ["bsub"], "pbs": ["qsub"], "flux": ["flux", "batch"]}
# Commands that send a file with the user's account, for engines that --submit does not support.
BY_FILE = {
    "sky": "sky launch FILE, or for restarts sky jobs launch FILE, with --secret NAME for each of cloud.secrets",
    "dstack": "dstack apply -f FILE",
    "aws_batch": "aws batch register-job-definition --cli-input-json file://FILE, then aws batch submit-job",
    "azureml": "az ml job create --file FILE",
}
# create, not apply: a second apply would try to change fields that cannot change; create reports that the job exists.
OF_KUBERNETES = ["kubectl", "create", "-f", "-"]
BY_SDK = (
    "modelarts: ranklaunch handles no credentials. Send this body as POST /v2/{project_id}/training-jobs, with the SDK: "
    "ModelArtsClient.create_training_job of huaweicloudsdkmodelarts.v1"
)


def send(engine: str, text: str, env: Mapping[str, str]) -> int:
    """Send a specification, and return the exit code of the sending program. Its output goes to the terminal. Raises ConfigError
    and MissingProgramError."""
    if engine == "modelarts":
        raise ConfigError(BY_SDK)
    if engine in BY_FILE:
        msg = f"{engine}: --submit does not know your account there; write the specification to FILE, then use {BY_FILE[engine]}"
        raise ConfigError(msg)
    argv = COMMANDS.get(engine, OF_KUBERNETES)
    program = shutil.which(argv[0], path=env.get("PATH", os.defpath))
    if not program:
        msg = f"{argv[0]}: not found on PATH, and --submit needs it; without --submit, the specification is only shown"
        raise MissingProgramError(msg)
    return subprocess.run([program, *argv[1:]], input=text.encode(), env=dict(env), check=False).returncode
