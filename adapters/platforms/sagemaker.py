"""Amazon SageMaker training jobs. A node is a host (algo-1, algo-2 ...) with one container, and the job's files are below /opt/ml.

Sources: https://docs.aws.amazon.com/sagemaker/latest/dg/your-algorithms-training-algo.html and the pages below it for SageMaker's own
settings; https://github.com/aws/sagemaker-training-toolkit, ENVIRONMENT_VARIABLES.md, for the toolkit's SM_ variables, and for the
arguments made of hyperparameters.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ranklaunch.adapters.platforms.shared.base import Place
from ranklaunch.adapters.platforms.shared.facts import Fact
from ranklaunch.env import parse
from ranklaunch.env.job import Job, Program
from ranklaunch.env.reader import Reader, Variable, platform_text
from ranklaunch.env.settings import HOSTS, NODE_INDEX
from ranklaunch.files import MOST_BYTES, join
from ranklaunch.showing import clipped

BASE = Variable("sagemaker_base", ("SAGEMAKER_BASE_DIR",), parse.text, "/opt/ml", "folder of the job's files", "image")
SM_HOSTS = HOSTS.also("SM_HOSTS", agree=True)
CURRENT_HOST = platform_text(
    "current_host", ("SM_CURRENT_HOST",), "name of this host", agree=True, per_node=True, default_text="current_host of resourceconfig.json"
)
PROGRAM = Variable(
    "sagemaker_program", ("SAGEMAKER_PROGRAM",), parse.text, "", "program, if the command line names none; path in the folder of the code",
    "image", default_text="hyperparameter sagemaker_program",
)  # fmt: skip
CODE = Variable(
    "sagemaker_code", ("SAGEMAKER_SUBMIT_DIRECTORY",), parse.text, "", "folder of the code", "image",
    default_text="hyperparameter sagemaker_submit_directory, else code below the folder of the job's files",
)  # fmt: skip


# Beginnings of hyperparameters of SageMaker and its SDK, which are no arguments of the program.
_NOT_ARGUMENTS = ("sagemaker_", "_tuning_objective_metric")
_DEFAULT_COMMAND = ("train",)  # SageMaker's command for an image if the job sets no entry point
_FOLDERS = ("model", "input", "input/config", "output", "output/data", "output/intermediate")
_CPUS = "/sys/devices/system/cpu"


class Sagemaker(Place):
    OWN = (BASE, SM_HOSTS, CURRENT_HOST, PROGRAM, CODE)

    def detect(self, reader: Reader) -> bool:
        return reader.files.exists(_config_file(reader, "resourceconfig")) or bool(reader.env.get("SM_HOSTS", "").strip())

    def program(self, reader: Reader, words: Sequence[str]) -> Program | None:
        """Return the program of SageMaker's hyperparameters, if the command line names none. `read` reports mistakes in them."""
        path = _path(reader) if tuple(words) in ((), _DEFAULT_COMMAND) else ""
        return Program(path, tuple(arguments(_own_hyperparameters(reader)))) if path else None

    def failure_file(self, reader: Reader) -> str:
        """Return the path at which SageMaker reads the reason of a failure."""
        return join(reader.get(BASE), "output/failure")

    def facts(self, reader: Reader) -> Iterator[Fact]:
        """Yield the hosts, sorted as SageMaker numbers them, and the index. Variables come first; the file must agree with them."""
        file, resources = _config_file(reader, "resourceconfig"), _object(reader, "resourceconfig")
        if resources:
            reader.offer(HOSTS, f"hosts of {file}", json.dumps(resources.get("hosts") or []))
            reader.offer(CURRENT_HOST, f"current_host of {file}", resources.get("current_host", ""))
        hosts, this_host = list(reader.get(SM_HOSTS)), reader.get(CURRENT_HOST)
        if not reader.by_user(HOSTS):
            hosts.sort()
            yield HOSTS, reader.source(SM_HOSTS), hosts
        if this_host in hosts:
            yield NODE_INDEX, reader.source(CURRENT_HOST), hosts.index(this_host)
        elif hosts and (hosts[1:] or this_host) and not reader.by_user(NODE_INDEX):
            wrong = f"{reader.source(CURRENT_HOST)} is {clipped(this_host)!r}: expected one of the hosts {clipped(','.join(hosts))}"
            reader.problem(f"{wrong}; or set {NODE_INDEX.name}")
        for name, value in _own_hyperparameters(reader).items():
            if not _fits(f"{name}{_argument(value)}"):
                reader.problem(f"{_config_file(reader, 'hyperparameters')}: no argument can hold the hyperparameter {name!a}")

    def finished(self, reader: Reader, job: Job) -> Job:
        """Return the job with the variables of SageMaker's training toolkit, and with the folder of a program that SageMaker names."""
        name = _program_name(reader) if job.program.path == _path(reader) else ""
        submitted = _submitted(reader)
        if name and submitted.startswith("s3://") and not reader.files.exists(job.program.path):
            reader.problem(
                f"sagemaker_submit_directory={clipped(submitted)!r}: the code is in S3, and {job.program.path} is not there: ranklaunch "
                "does not fetch it; put it into the image, or start `ranklaunch run` from a script that SageMaker's training toolkit runs"
            )
        env = tuple(sorted(_environment(reader, job, name).items()))
        python = reader.absolute(job.python) if name and "/" in job.python else job.python
        return replace(job, env=env, folder=job.program.path.removesuffix(f"/{name}") if name else "", python=python)


def _fits(text: str) -> bool:
    """Return True for a text that a command line and an environment can hold: without NUL and lone surrogates."""
    try:
        return b"\0" not in text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return False


# The program


def _program_name(reader: Reader) -> str:
    return reader.get(PROGRAM) or str(_hyperparameters(reader).get(PROGRAM.value, ""))


def _submitted(reader: Reader) -> str:
    """Return the folder of the code, or its archive in S3; "" if neither is set."""
    return str(_hyperparameters(reader).get("sagemaker_submit_directory") or "") or reader.get(CODE)


def _path(reader: Reader) -> str:
    """Return the path of the program that SageMaker names: the first that exists, else the first possible one; "" without a name."""
    name, folder_of_job = _program_name(reader), _submitted(reader)
    paths = [join(folder, name) for folder in (folder_of_job, join(reader.get(BASE), "code")) if name and folder.startswith("/")]
    return next(filter(reader.files.exists, paths), "".join(paths[:1]))


def arguments(hyperparameters: dict[str, Any]) -> list[str]:
    """Return the arguments that SageMaker's training toolkit makes: sorted, --name and value; -n and value for a name of one letter."""
    words = []
    for name, value in sorted(hyperparameters.items()):
        words += [f"--{name}" if len(name) > 1 else name and f"-{name}", _argument(value)]
    return words


def _argument(value: Any) -> str:
    if isinstance(value, dict):
        return ",".join(f"{key}={item}" for key, item in sorted(value.items()))
    return "" if value is None else str(value)


def _own_hyperparameters(reader: Reader) -> dict[str, Any]:
    return {name: value for name, value in _hyperparameters(reader).items() if not name.startswith(_NOT_ARGUMENTS)}


def _hyperparameters(reader: Reader) -> dict[str, Any]:
    """Return the hyperparameters. Their values are texts: the SDK writes JSON, and a text that is not JSON is kept as it is."""
    return {name: _decoded(value) for name, value in _object(reader, "hyperparameters").items()}


def _decoded(value: Any) -> Any:
    try:
        return json.loads(value)
    except (ValueError, TypeError, RecursionError):
        return value


# The environment that SageMaker's training toolkit gives a program


def _environment(reader: Reader, job: Job, name: str) -> dict[str, str]:
    """Return the toolkit's variables that are not set yet, and that have a valid name. name: the program, if SageMaker names it."""
    texts = {f"SM_{value}": _text(text) for value, text in _toolkit_values(reader, job, name).items()}
    always = CURRENT_HOST.names  # the planned node's host, which may be another one than in the environment
    return {name: text for name, text in texts.items() if name in always or (name not in reader.env and re.fullmatch("[^\\s=]+", name))}


def _toolkit_values(reader: Reader, job: Job, name: str) -> dict[str, Any]:
    """Return the values of the toolkit's variables, by their names without SM_. name: the program, if SageMaker names it."""
    base, resources, channels = reader.get(BASE), _object(reader, "resourceconfig"), _object(reader, "inputdataconfig")
    hyperparameters = _own_hyperparameters(reader)
    cpus = sum(bool(re.fullmatch("cpu[0-9]+", name)) for name in reader.files.names(_CPUS))
    entry = name or posixpath.basename(job.program.path)
    return {
        "HOSTS": [node.host for node in job.nodes],
        "CURRENT_HOST": job.node.host,
        "CURRENT_INSTANCE_TYPE": resources.get("current_instance_type", "local"),
        "CURRENT_INSTANCE_GROUP": resources.get("current_group_name", "homogeneousCluster"),
        "NETWORK_INTERFACE_NAME": resources.get("network_interface_name", "eth0"),
        "RESOURCE_CONFIG": resources,
        "INPUT_DATA_CONFIG": channels,
        **{f"{folder.upper().replace('/', '_')}_DIR": join(base, folder) for folder in _FOLDERS},
        "CHANNELS": sorted(channels),
        "NUM_GPUS": job.node.slots if job.accelerator == "gpu" else 0,
        **({"NUM_CPUS": cpus} if cpus else {}),
        "LOG_LEVEL": _hyperparameters(reader).get("sagemaker_container_log_level", 20),
        "USER_ENTRY_POINT": entry,
        "MODULE_NAME": entry.removesuffix(".py"),
        "MODULE_DIR": (_submitted(reader) if name else posixpath.dirname(job.program.path)) or join(base, "code"),
        "HPS": hyperparameters,
        "USER_ARGS": list(job.program.args),
        **{f"CHANNEL_{name.upper()}": join(base, f"input/data/{name}") for name in channels},
        **{f"HP_{name.upper()}": value for name, value in hyperparameters.items()},
    }


def _text(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


# Files


def _config_file(reader: Reader, name: str) -> str:
    base = reader.env.get(BASE.name, "") or BASE.default
    return join(base, f"input/config/{name}.json")


def _object(reader: Reader, name: str) -> dict[str, Any]:
    """Return the JSON object of a configuration file, {} without the file. Record a problem for another content."""
    path = _config_file(reader, name)
    try:
        result = json.loads((reader.files.text(path, MOST_BYTES) or "").strip() or "{}")
    except (ValueError, RecursionError):
        result = None
    if isinstance(result, dict):
        return result
    reader.problem(f"{path}: expected a JSON object")
    return {}
