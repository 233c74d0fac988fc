"""A user's own configuration file of accelerate, with the platform's counts and addresses added.

All other keys stay unchanged. A file that contradicts the job is refused, with the key and its value. Files are JSON, or the part of
YAML that `accelerate config` writes: keys, one level of keys below a key without a value, and scalars with the meaning of PyYAML.
Anything else is refused, not guessed. Such a message has the number of the line but not its text, which may hold a secret.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from ranklaunch.env.job import Job
from ranklaunch.env.reader import Reader
from ranklaunch.errors import counted
from ranklaunch.files import MOST_BYTES
from ranklaunch.showing import clipped

Config = dict[str, Any]

_COUNTS = ("num_machines", "num_processes", "main_process_ip", "main_process_port")  # from the platform, the same on all nodes
_PLACE = (*_COUNTS, "machine_rank")
# With one of these options, accelerate ignores distributed_type.
_WAYS = ("--multi_gpu", "--tpu", "--tpu_cluster", "--use_deepspeed", "--use_fsdp", "--use_megatron_lm")
_ONE_PROCESS = ("NO", "MULTI_CPU", False)  # NO without quotes is false in YAML
_LAUNCHER, _OWN_NODE = "deepspeed_multinode_launcher", ("standard", "nossh")  # values with which DeepSpeed starts the node's own ranks only

_BLANK = re.compile(r"\s*(?:#.*)?|---")
_LINE = re.compile(
    r"""(?P<indent>\ *)(?P<key>[A-Za-z_][\w.-]*):
    (?:\ +(?P<value>'[^']*'|"[^"\\]*"|[^\s'"\#].*?))?
    (?:\ +\#.*)?\ *""",
    re.VERBOSE,
)
_TRUE, _FALSE, _NULL = "true True TRUE yes Yes YES on On ON", "false False FALSE no No NO off Off OFF", "~ null Null NULL"
_WORDS: Config = {
    **dict.fromkeys(_TRUE.split(), True), **dict.fromkeys(_FALSE.split(), False), **dict.fromkeys(_NULL.split()),
    "": None, "[]": [], "{}": {},
}  # fmt: skip
_NUMBER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)(?:\.[0-9]*(?:[eE][-+][0-9]+)?)?")
# Numbers in other notations, dates, and characters with a special meaning in YAML.
_UNCLEAR = re.compile(
    r"""[-+]?(?:0[box]?[0-9a-f_]+ | [0-9][0-9_]*(?::[0-9]+)*(?:\.[0-9_]*(?:e[-+][0-9]+)?)? | \.[0-9_]+(?:e[-+][0-9]+)? | \.(?:inf|nan))
    | [0-9]{4}-[0-9]{1,2}-[0-9]{1,2}.* | << | = | [,\[\]{}\#&*!|>'"%@`].* | [-?:](?:\s.*)? | .*:(?:\s.*)? | .*\t.*""",
    re.VERBOSE | re.IGNORECASE,
)


def merged(job: Job, reader: Reader, path: str, where: str, job_values: Config, options: set[str]) -> Config:
    """Return the file's values with the values of this node.

    where: name of the file in messages. job_values: the values without a file. options: accelerate's options from the user.
    """
    try:
        user_values = _load(reader, path)
    except (ValueError, RecursionError) as error:
        reader.problem(f"{where}: {error}")
        return job_values
    for problem in _problems(job, user_values, options):
        reader.problem(f"{where} has {problem}")
    values = {**user_values, **{name: value for name, value in job_values.items() if name in _PLACE or user_values.get(name) is None}}
    if job_values["use_cpu"]:
        values["use_cpu"] = True
    if user_values.get("distributed_type") in _ONE_PROCESS and job.world_size == 1:
        values["distributed_type"] = job_values["distributed_type"]  # a single rank is started in the same way as several
    if _needs_deepspeed_launcher(job, user_values, options):
        config = user_values.get("deepspeed_config") or {}
        values["deepspeed_config"] = {**config, _LAUNCHER: config.get(_LAUNCHER) or _OWN_NODE[0]}
    _warn_of_replaced(reader, where, user_values, values)
    return values


def _warn_of_replaced(reader: Reader, where: str, user_values: Config, values: Config) -> None:
    replaced = [
        f"{name} {clipped(str(user_values[name]))} by {values[name]}"
        for name in (*_COUNTS, "use_cpu")
        if user_values.get(name) is not None and str(user_values[name]) != str(values[name])
    ]
    if replaced:
        reader.warn(f"{where}: this job's values replace {', '.join(replaced)}")


def _load(reader: Reader, path: str) -> Config:
    text = reader.files.text(path, MOST_BYTES)
    if text is None:
        msg = f"no such file, or it cannot be read: expected accelerate's configuration at {path}"
        raise ValueError(msg)
    values = loads(text, path)
    if not isinstance(values.get("deepspeed_config") or {}, dict):
        msg = f"deepspeed_config {clipped(str(values['deepspeed_config']))!r}: expected keys below it"
        raise ValueError(msg)
    return values


def _problems(job: Job, user_values: Config, options: set[str]) -> Iterator[str]:
    kind = user_values.get("distributed_type")
    if user_values.get("compute_environment") not in (None, "LOCAL_MACHINE"):
        yield f"compute_environment {user_values['compute_environment']}, with which each node would submit a job: expected LOCAL_MACHINE"
    if kind in _ONE_PROCESS and job.world_size > 1 and not options.intersection((*_WAYS, "--mpirun_hostfile")):
        yield (
            f"distributed_type {kind}, but {job.world_size} ranks are planned: accelerate would start one process on each node, which "
            f"trains alone: expected MULTI_GPU, on CPUs too (with use_cpu: true)"
        )
    devices = str(user_values.get("gpu_ids") or "all").split(",")
    if "--gpu_ids" not in options and devices != ["all"] and len(devices) < job.node.slots:
        wanted = f"{counted(job.node.slots, 'rank')} of this node need one each"
        yield f"gpu_ids {clipped(str(user_values['gpu_ids']))} ({counted(len(devices), 'device')}), but {wanted}: expected all"
    launcher = (user_values.get("deepspeed_config") or {}).get(_LAUNCHER)
    if _needs_deepspeed_launcher(job, user_values, options) and launcher not in (None, *_OWN_NODE):
        yield (
            f"{_LAUNCHER} {launcher}, with which each of {len(job.nodes)} nodes would start the ranks of all: expected standard, or add "
            f"--{_LAUNCHER} standard"
        )


def _needs_deepspeed_launcher(job: Job, user_values: Config, options: set[str]) -> bool:
    """Return True if DeepSpeed's default launcher, pdsh, would start the ranks of all nodes on each node."""
    by_file = user_values.get("distributed_type") == "DEEPSPEED" and not options.intersection(_WAYS)
    uses_deepspeed = "--use_deepspeed" in options or by_file
    return uses_deepspeed and job.has_peers and f"--{_LAUNCHER}" not in options


def loads(text: str, path: str) -> Config:
    """Parse a configuration: JSON if the path ends in .json, else YAML, as accelerate does. Raises ValueError."""
    if not path.endswith(".json"):
        return _yaml(text)
    values = json.loads(text)
    if not isinstance(values, dict):
        msg = "expected keys with values"
        raise ValueError(msg)
    return values


def _yaml(text: str) -> Config:
    top: Config = {}
    parent = ""  # key without a value; its own keys may follow
    level = ""  # indent of the keys below the parent
    into = top
    for number, line in enumerate(text.splitlines(), 1):
        if _BLANK.fullmatch(line):
            continue
        parts = _LINE.fullmatch(line)
        if not parts:
            raise _refusal(number, "expected `key: value`")
        indent, key, value = parts.groups()
        if not indent:
            into, parent, level = top, "" if value else key, ""
        elif parent and not level:
            into = top[parent] = {}
            level = indent
        elif indent != level:
            raise _refusal(number, "expected one level of keys, below a key without a value, or JSON in a file NAME.json")
        into[key] = _scalar(value or "", number)
    return top


def _scalar(text: str, number: int) -> object:
    if text.startswith(("'", '"')):
        return text[1:-1]
    if text in _WORDS:
        return _WORDS[text]
    if _NUMBER.fullmatch(text):
        return float(text) if "." in text else int(text)
    if _UNCLEAR.fullmatch(text):
        raise _refusal(number, "the value is not understood: put it into quotes if it is a text")
    return text


def _refusal(number: int, why: str) -> ValueError:
    return ValueError(f"line {number}: {why}")
