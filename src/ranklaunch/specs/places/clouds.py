"""Tasks of SkyPilot and dstack, job definitions of AWS Batch, command jobs of Azure ML. Every node starts the same command."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

from ranklaunch.specs import pod as common
from ranklaunch.specs.model import JobSpec
from ranklaunch.specs.places.quantities import GIBI, MEBI, in_units

Body = dict[str, Any]
MOST_RULES = 5  # AWS Batch's limit for evaluateOnExit
LEAST_S_OF_AWS = 60


def line(spec: JobSpec, cd: bool = False) -> str:
    """Return the command line for a shell. With exec, signals reach ranklaunch instead of a shell that does not pass them on.

    cd: change to workingDir first.
    """
    words = shlex.join(common.command(spec))
    return f"cd -- {shlex.quote(spec.working_dir)} && exec {words}" if cd and spec.working_dir else f"exec {words}"


def sky(spec: JobSpec) -> Body:
    cloud, kind = spec.cloud, spec.cloud.accelerator
    resources = common.non_empty(
        infra=cloud.infra,
        accelerators=f"{kind}:{spec.devices_per_node}" if kind else "",
        cpus=f"{spec.resources.cpu}+" if spec.resources.cpu else "",
        memory=f"{in_units(spec.resources.memory, GIBI)}+" if spec.resources.memory else "",
        image_id=f"docker:{common.image(spec)}" if spec.image.repository else "",
        use_spot=cloud.spot,
        job_recovery={"max_restarts_on_errors": spec.restart.max_restarts} if spec.restart.max_restarts else None,
    )
    return {
        "name": spec.name,
        "num_nodes": spec.nodes,
        **common.non_empty(resources=resources, workdir=cloud.code, envs=_env(spec), secrets=dict.fromkeys(sorted(cloud.secrets))),
        "run": line(spec, cd=True),
    }


def dstack(spec: JobSpec) -> Body:
    cloud, memory = spec.cloud, spec.resources.memory
    gpu = {"name": cloud.accelerator, "count": spec.devices_per_node} if cloud.accelerator else None
    resources = common.non_empty(
        cpu=f"{spec.resources.cpu}.." if spec.resources.cpu else "",
        memory=f"{in_units(memory, GIBI)}GB.." if memory else "",
        gpu=gpu,
        shm_size=f"{in_units(spec.shm.size_limit, GIBI)}GB" if spec.shm.size_limit else "",
    )
    secrets = {name: f"${{{{ secrets.{cloud.secrets[name]} }}}}" for name in sorted(cloud.secrets)}
    return {
        "type": "task",
        "name": spec.name,
        "nodes": spec.nodes,
        "image": common.image(spec),
        "env": {**_env(spec), **secrets},  # as a map: values of a list cannot have line breaks
        "commands": [line(spec)],
        **common.non_empty(
            working_dir=spec.working_dir,
            resources=resources,
            spot_policy="spot" if cloud.spot else "",
            max_duration=f"{spec.lifecycle.deadline_seconds}s" if spec.lifecycle.deadline_seconds else "",
            fleets=list(cloud.fleets),
        ),
    }


def aws_batch(spec: JobSpec) -> Body:
    """Return the input of `aws batch register-job-definition --cli-input-json`."""
    cloud = spec.cloud
    container = {
        "image": common.image(spec),
        "command": common.command(spec),
        "environment": [{"name": name, "value": text} for name, text in _env(spec).items()],
        "resourceRequirements": list(_requirements(spec)),
        **common.non_empty(
            secrets=[{"name": name, "valueFrom": cloud.secrets[name]} for name in sorted(cloud.secrets)],
            linuxParameters={"sharedMemorySize": _mebibytes(spec.shm.size_limit)} if spec.shm.size_limit else None,
            instanceType=cloud.instance_type,
            jobRoleArn=cloud.role,
            executionRoleArn=cloud.execution_role,
        ),
    }
    deadline = spec.lifecycle.deadline_seconds
    return {
        "jobDefinitionName": spec.name,
        "type": "multinode",
        "nodeProperties": {
            "numNodes": spec.nodes,
            "mainNode": 0,
            "nodeRangeProperties": [{"targetNodes": f"0:{spec.nodes - 1}", "container": container}],
        },
        **common.non_empty(retryStrategy=_retries(spec), timeout={"attemptDurationSeconds": deadline} if deadline else None),
    }


def _requirements(spec: JobSpec) -> Iterator[dict[str, str]]:
    if spec.device.kind == "gpu":
        yield {"type": "GPU", "value": str(spec.devices_per_node)}
    yield {"type": "VCPU", "value": spec.resources.cpu}
    yield {"type": "MEMORY", "value": str(_mebibytes(spec.resources.memory))}


def _mebibytes(quantity: str) -> int:
    return max(1, in_units(quantity, MEBI))


def _retries(spec: JobSpec) -> Body | None:
    """Return the retry rules. The first match counts: a code that forbids restarts ends the job, any other restarts the job."""
    if not spec.restart.max_restarts:
        return None
    never = [{"onExitCode": str(code), "action": "EXIT"} for code in sorted(spec.restart.no_retry_exit_codes)]
    return {"attempts": spec.restart.max_restarts + 1, "evaluateOnExit": [*never, {"onReason": "*", "action": "RETRY"}]}


def azureml(spec: JobSpec) -> Body:
    """Return a command job with one process of each instance: ranklaunch, which starts the ranks."""
    cloud = spec.cloud
    several = {"type": "pytorch", "process_count_per_instance": 1} if spec.nodes > 1 else None
    deadline = spec.lifecycle.deadline_seconds
    return {
        "$schema": "https://azuremlschemas.azureedge.net/latest/commandJob.schema.json",
        "type": "command",
        "display_name": spec.name,
        "command": line(spec, cd=True),
        **common.non_empty(code=cloud.code),
        "environment": {"image": common.image(spec)},
        "compute": cloud.compute,
        "resources": {
            "instance_count": spec.nodes,
            **common.non_empty(shm_size=f"{_mebibytes(spec.shm.size_limit)}m" if spec.shm.size_limit else ""),
        },
        **common.non_empty(distribution=several, environment_variables=_env(spec), limits={"timeout": deadline} if deadline else None),
    }


def _env(spec: JobSpec) -> dict[str, str]:
    return {each["name"]: each["value"] for each in common.environment(spec)}


BODIES = {"sky": sky, "dstack": dstack, "aws_batch": aws_batch, "azureml": azureml}


# Problems

# Beginning of the texts that a platform replaces, and True if it replaces them in the environment too. No platform can escape them.
REPLACED = {"dstack": ("${{", True), "aws_batch": ("Ref::", False), "azureml": ("${{", True), "flux": ("{{", True)}


def problems(spec: JobSpec) -> Iterator[str]:
    yield from replaced(spec)
    for name in sorted(set(spec.cloud.secrets) & {each["name"] for each in common.environment(spec)}):
        yield f"cloud.secrets.{name}: there is a variable of this name too; leave one out"
    yield from OF_EACH[spec.engine](spec)


def replaced(spec: JobSpec) -> Iterator[str]:
    """Refuse texts of the program, and of the environment, that the platform would replace."""
    sign, in_env = REPLACED.get(spec.engine, ("", False))
    program = [("script", spec.script), *(("args", word) for word in spec.args), ("workingDir", spec.working_dir)]
    others = [(f"env.{name}", text) for name, text in sorted(spec.env.items())] if in_env else []
    for path, text in (*program, *others):
        if sign and sign in text:
            yield f"{path}: {text[:60]!r}: {spec.engine} puts values of its own in place of {sign}...; let the program read it from a file"


def _sky(spec: JobSpec) -> Iterator[str]:
    for name, reference in sorted(spec.cloud.secrets.items()):
        if reference:
            yield f"cloud.secrets.{name}: expected an empty text with sky, which is given the secret at launch (sky launch --secret {name})"


def _dstack(spec: JobSpec) -> Iterator[str]:
    for name, reference in sorted(spec.cloud.secrets.items()):
        if not re.fullmatch(r"[A-Za-z0-9_]{1,200}", reference):
            yield f"cloud.secrets.{name}={reference[:60]!r}: expected the name of a secret of dstack's (dstack secret set NAME VALUE)"


def _aws_batch(spec: JobSpec) -> Iterator[str]:
    for name in sorted(name for name in spec.env if name.startswith("AWS_BATCH")):
        yield f"env.{name}: names that begin with AWS_BATCH are the platform's"
    for name, reference in sorted(spec.cloud.secrets.items()):
        if not re.fullmatch(r"arn:[!-~]+", reference):
            yield f"cloud.secrets.{name}={reference[:60]!r}: expected the ARN of a secret or a parameter"
    if 0 < spec.lifecycle.deadline_seconds < LEAST_S_OF_AWS:
        yield f"lifecycle.deadlineSeconds={spec.lifecycle.deadline_seconds}: expected at least {LEAST_S_OF_AWS} with aws_batch"
    if spec.restart.max_restarts > 9:
        yield f"restart.maxRestarts={spec.restart.max_restarts}: expected at most 9 with aws_batch"
    if spec.restart.max_restarts and len(spec.restart.no_retry_exit_codes) >= MOST_RULES:
        yield f"restart.noRetryExitCodes: {len(spec.restart.no_retry_exit_codes)} codes, expected at most {MOST_RULES - 1} with aws_batch"


def _azureml(spec: JobSpec) -> Iterator[str]:
    for name in sorted(spec.cloud.secrets):
        yield f"cloud.secrets.{name}: azureml has no secrets in jobs; let the program read a key vault, or a file of an input"


OF_EACH = {"sky": _sky, "dstack": _dstack, "aws_batch": _aws_batch, "azureml": _azureml}
