"""Sends a job's specification to its platform, with the program that people use for it there."""

from __future__ import annotations

import os
import shutil
import subprocess  # noqa: TID251 - this is where commands other than run start a process
from collections.abc import Mapping

from ranklaunch.errors import ConfigError, MissingProgramError

COMMANDS = {"slurm": ["sbatch"], "lsf": ["bsub"], "pbs": ["qsub"], "flux": ["flux", "batch"]}
# By whose programs a file is sent, with an account of yours.
BY_FILE = {
    "sky": "sky launch FILE, or for restarts sky jobs launch FILE, with --secret NAME for each of cloud.secrets",
    "dstack": "dstack apply -f FILE",
    "aws_batch": "aws batch register-job-definition --cli-input-json file://FILE, then aws batch submit-job",
    "azureml": "az ml job create --file FILE",
}
# Applying it a second time would ask for a change of what engines do not let change; creating says that it is there.
OF_KUBERNETES = ["kubectl", "create", "-f", "-"]
BY_SDK = (
    "modelarts: ranklaunch handles no credentials. Send this body as POST /v2/{project_id}/training-jobs, with the SDK: "
    "ModelArtsClient.create_training_job of huaweicloudsdkmodelarts.v1"
)


def send(engine: str, text: str, env: Mapping[str, str]) -> int:
    """Return the exit code of the sending program; its output goes to the terminal."""
    if engine == "modelarts":
        raise ConfigError(BY_SDK)
    if engine in BY_FILE:
        msg = f"{engine}: --submit does not know your account there. Put this into a file: {BY_FILE[engine]}"
        raise ConfigError(msg)
    argv = COMMANDS.get(engine, OF_KUBERNETES)
    program = shutil.which(argv[0], path=env.get("PATH", os.defpath))
    if not program:
        msg = f"{argv[0]}: not found on PATH, and --submit needs it; without --submit the specification is shown alone"
        raise MissingProgramError(msg)
    return subprocess.run([program, *argv[1:]], input=text.encode(), env=dict(env), check=False).returncode
