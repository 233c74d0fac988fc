"""Amazon SageMaker training jobs. One node is one host, algo-1 and on; one container on each, with the job's files below /opt/ml.

Source: https://docs.aws.amazon.com/sagemaker/latest/dg/your-algorithms-training-algo.html and the pages below it, for what SageMaker
provides; https://github.com/aws/sagemaker-training-toolkit, ENVIRONMENT_VARIABLES.md, for SM_ variables, which that toolkit sets, and for
how hyperparameters become arguments.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Sequence

from ranklaunch import showing
from ranklaunch.adapters.platforms.shared import base
from ranklaunch.files import join
from ranklaunch.read import parse
from ranklaunch.read.job import Job, Program
from ranklaunch.read.provenance import Candidate
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import HOSTS as ANY_HOSTS
from ranklaunch.read.settings import JOB_NAME as ANY_JOB_NAME
from ranklaunch.read.settings import NODE_INDEX, NODES, devices, make_job, spread
from ranklaunch.read.settings import SLOTS as ANY_SLOTS
from ranklaunch.typed import Any

NAME = "sagemaker"

BASE = Variable("sagemaker_base", ("SAGEMAKER_BASE_DIR",), parse.text, "/opt/ml", "folder of the job's files", "image")
HOSTS = ANY_HOSTS.also("SM_HOSTS", agree=True)
CURRENT_HOST = Variable(
    "current_host", ("SM_CURRENT_HOST",), parse.text, "", "name of this host", "platform", agree=True, per_node=True,
    default_text="current_host of resourceconfig.json",
)  # fmt: skip
SLOTS = ANY_SLOTS.also("SM_NUM_GPUS")
JOB_NAME = ANY_JOB_NAME.also("TRAINING_JOB_NAME")
PROGRAM = Variable(
    "sagemaker_program", ("SAGEMAKER_PROGRAM",), parse.text, "", "program, where the command line names none; in the folder of the code",
    "image", default_text="hyperparameter sagemaker_program",
)  # fmt: skip
CODE = Variable(
    "sagemaker_code", ("SAGEMAKER_SUBMIT_DIRECTORY",), parse.text, "", "folder of the code", "image",
    default_text="hyperparameter sagemaker_submit_directory, else code below the folder of the job's files",
)  # fmt: skip

VARIABLES: tuple[Variable[object], ...] = (BASE, HOSTS, CURRENT_HOST, SLOTS, JOB_NAME, PROGRAM, CODE)

attempt = base.attempt
log_dir = base.log_dir

# Of SageMaker and its SDK, besides all that begin with sagemaker_: no arguments of the program.
_NOT_ARGUMENTS = ("sagemaker_", "_tuning_objective_metric")
_DEFAULT_COMMAND = ("train",)  # with which SageMaker starts an image whose entry point is not said
_FOLDERS = ("model", "input", "input/config", "output", "output/data", "output/intermediate")
_CPUS = "/sys/devices/system/cpu"
_MOST_BYTES = 16 * 1024 * 1024


def detect(reader: Reader) -> bool:
    return reader.files.exists(_config_file(reader, "resourceconfig")) or bool(reader.env.get("SM_HOSTS", "").strip())


def program(reader: Reader, words: Sequence[str]) -> Program | None:
    """What SageMaker's hyperparameters say should run, where the command line does not. What is wrong with them, `read` says."""
    path = _path(reader) if tuple(words) in ((), _DEFAULT_COMMAND) else ""
    return Program(path, tuple(arguments(_own_hyperparameters(reader)))) if path else None


def failure_file(reader: Reader) -> str:
    """Where SageMaker finds the reason of a failure."""
    return join(reader.get(BASE), "output/failure")


def read(reader: Reader, program: Program) -> Job:
    resources = _object(reader, "resourceconfig")
    _offer(reader, resources)
    hosts = _hosts(reader)
    index = _index(reader, hosts) if hosts else 0
    hosts = hosts or ("localhost",)  # where they are malformed, which is said already
    _refuse_unfit(reader)
    name = _named(reader) if program.path == _path(reader) else ""
    if name:
        _refuse_missing_code(reader, program, name)
    slots = spread(reader, SLOTS, reader.get(SLOTS) if reader.given(SLOTS) else (devices(reader),), len(hosts))
    return make_job(
        reader,
        program,
        platform=NAME,
        name=reader.get(JOB_NAME) or NAME,
        attempt=attempt(reader, len(hosts), index),
        hosts=hosts,
        slots=slots,
        node_index=index,
        accelerator=("gpu", reader.source(SLOTS)),
        env=tuple(sorted(_environment(reader, resources, hosts, index, slots[index], program, name).items())),
        folder=program.path.removesuffix(f"/{name}") if name else "",
    )


# Nodes


def _offer(reader: Reader, resources: dict[str, Any]) -> None:
    """What a file says comes after variables, which must agree with it."""
    file = _config_file(reader, "resourceconfig")
    if resources:
        reader.offer(HOSTS.value, Candidate(f"hosts of {file}", json.dumps(resources.get("hosts") or [])))
        reader.offer(CURRENT_HOST.value, Candidate(f"current_host of {file}", str(resources.get("current_host", ""))))


def _hosts(reader: Reader) -> tuple[str, ...]:
    """Return the hosts in node order; none if they are malformed."""
    hosts = reader.get(HOSTS) if reader.given(HOSTS) else ("localhost",)
    if reader.given(NODES) and reader.get(NODES) != len(hosts):
        reader.problem(f"{reader.told(NODES)}, but {reader.source(HOSTS)} names {len(hosts)} hosts: expected as many names as nodes")
    return hosts if reader.by_user(HOSTS) else tuple(sorted(hosts))


def _index(reader: Reader, hosts: tuple[str, ...]) -> int:
    if reader.by_user(NODE_INDEX):
        return base.index(reader, len(hosts), NODE_INDEX)
    name, source = reader.get(CURRENT_HOST), reader.source(CURRENT_HOST)
    if name in hosts:
        reader.ledger.note(NODE_INDEX.value, str(hosts.index(name)), source)
        return hosts.index(name)
    if len(hosts) > 1 or name:
        shown = showing.clipped(",".join(hosts))
        reader.problem(f"{source} is {showing.clipped(name)!r}: expected one of the hosts {shown}; or set {NODE_INDEX.names[0]}")
    return 0


# The program


def _named(reader: Reader) -> str:
    return reader.get(PROGRAM) or str(_hyperparameters(reader).get(PROGRAM.value, ""))


def _submitted(reader: Reader) -> str:
    """Where the code comes from, "" if nothing says it: a folder, or an archive in S3."""
    return str(_hyperparameters(reader).get("sagemaker_submit_directory") or "") or reader.get(CODE)


def _path(reader: Reader) -> str:
    """Return the program that SageMaker itself names, in the first folder that has it, else where it should be; "" without one."""
    name, told = _named(reader), _submitted(reader)
    places = [join(folder, name) for folder in (told, join(reader.get(BASE), "code")) if name and folder.startswith("/")]
    return next(filter(reader.files.exists, places), "".join(places[:1]))


def _refuse_missing_code(reader: Reader, program: Program, name: str) -> None:
    told = _submitted(reader)
    if name.startswith("-") or ".." in name.split("/"):
        reader.problem(
            f"sagemaker_program={showing.clipped(name)!r}: expected the path of a file in the folder of the code, such as train.py"
        )
    elif told.startswith("s3://") and not reader.files.exists(program.path):
        reader.problem(
            f"sagemaker_submit_directory={showing.clipped(told)!r}: the code is in S3, and {program.path} is not there: ranklaunch "
            "does not fetch it; put it into the image, or start `ranklaunch run` from a script that SageMaker's training toolkit runs"
        )


def arguments(hyperparameters: dict[str, Any]) -> list[str]:
    """As SageMaker's training toolkit makes them: by name, --name and value; a name of one letter has one dash."""
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
    """SageMaker's values are texts. Its SDK makes them of JSON; one that is no JSON is meant as it is."""
    return {name: _decoded(value) for name, value in _object(reader, "hyperparameters").items()}


def _decoded(value: Any) -> Any:
    try:
        return json.loads(value)
    except (ValueError, TypeError, RecursionError):
        return value


def _refuse_unfit(reader: Reader) -> None:
    """What neither an argument nor a variable can hold."""
    for name, value in _own_hyperparameters(reader).items():
        try:
            possible = b"\0" not in f"{name}{_argument(value)}".encode(errors="surrogateescape")
        except UnicodeEncodeError:
            possible = False
        if not possible:
            reader.problem(f"{_config_file(reader, 'hyperparameters')}: no argument can hold the hyperparameter {name!a}")


# The environment that SageMaker's training toolkit gives a program


def _environment(
    reader: Reader, resources: dict[str, Any], hosts: Sequence[str], index: int, gpus: int, program: Program, name: str
) -> dict[str, str]:
    """Less what this module cannot know, or nobody could use with several processes. A variable that is set already stays. name: by which
    SageMaker calls the program, "" for another one."""
    base, channels, own = reader.get(BASE), _object(reader, "inputdataconfig"), _own_hyperparameters(reader)
    cpus = sum(bool(re.fullmatch("cpu[0-9]+", name)) for name in reader.files.names(_CPUS))
    entry = name or posixpath.basename(program.path)
    values: dict[str, Any] = {
        "HOSTS": list(hosts),
        "CURRENT_HOST": hosts[index],
        "CURRENT_INSTANCE_TYPE": resources.get("current_instance_type", "local"),
        "CURRENT_INSTANCE_GROUP": resources.get("current_group_name", "homogeneousCluster"),
        "NETWORK_INTERFACE_NAME": resources.get("network_interface_name", "eth0"),
        "RESOURCE_CONFIG": resources,
        "INPUT_DATA_CONFIG": channels,
        **{f"{folder.upper().replace('/', '_')}_DIR": join(base, folder) for folder in _FOLDERS},
        "CHANNELS": sorted(channels),
        "NUM_GPUS": gpus,
        **({"NUM_CPUS": cpus} if cpus else {}),
        "LOG_LEVEL": _hyperparameters(reader).get("sagemaker_container_log_level", 20),
        "USER_ENTRY_POINT": entry,
        "MODULE_NAME": entry.removesuffix(".py"),
        "MODULE_DIR": (_submitted(reader) if name else posixpath.dirname(program.path)) or join(base, "code"),
        "HPS": own,
        "USER_ARGS": list(program.args),
        **{f"CHANNEL_{name.upper()}": join(base, f"input/data/{name}") for name in channels},
        **{f"HP_{name.upper()}": value for name, value in own.items()},
    }
    texts = {f"SM_{name}": _text(value) for name, value in values.items()}
    return {name: text for name, text in texts.items() if name in CURRENT_HOST.names or (name not in reader.env and _possible(name, text))}


def _text(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _possible(name: str, text: str) -> bool:
    return name.isprintable() and "=" not in name and " " not in name and "\0" not in text


# Files


def _config_file(reader: Reader, name: str) -> str:
    base = reader.env.get(BASE.names[0], "") or BASE.default
    return join(base, f"input/config/{name}.json")


def _object(reader: Reader, name: str) -> dict[str, Any]:
    """{} where there is none."""
    path = _config_file(reader, name)
    try:
        text = reader.files.text(path, _MOST_BYTES)
        found = json.loads(text) if text and text.strip() else {}
        if isinstance(found, dict):
            return found
        reader.problem(f"{path}: expected a JSON object")
    except (ValueError, RecursionError) as error:
        reader.problem(f"{path}: not JSON: {error}")
    return {}
