"""A user's own configuration file of accelerate's with the platform's counts and addresses in it. All other keys stay as they are; what
contradicts the job is refused by its name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ranklaunch import showing
from ranklaunch.adapters.launchers.shared.accelerate import read
from ranklaunch.errors import counted
from ranklaunch.read.job import Job
from ranklaunch.read.reader import Reader
from ranklaunch.typed import Any
from ranklaunch.values import Value

MOST_BYTES = 1024 * 1024
_PLACE = ("num_machines", "num_processes", "machine_rank", "main_process_ip", "main_process_port")  # the platform's
_WHERE = ("compute_environment", "distributed_type", "use_cpu")  # ours where the file does not say them
# With one of these, the type in a configuration is not looked at.
_WAYS = ("--multi_gpu", "--tpu", "--tpu_cluster", "--use_deepspeed", "--use_fsdp", "--use_megatron_lm")
_ONE_PROCESS = ("NO", "MULTI_CPU")
_LAUNCHER, _OWN_NODE = "deepspeed_multinode_launcher", ("standard", "nossh")  # ways by which DeepSpeed's ranks are those of the node


class Own(Value):
    """where: how messages call it."""

    path: str
    where: str


def merged(job: Job, reader: Reader, file: Own, ours: Mapping[str, Any], options: set[str]) -> dict[str, Any]:
    """options: those that the user gives to accelerate."""
    told = _read(reader, file)
    if told is None:
        return dict(ours)
    wrong = list(_wrong_kinds(told))
    for problem in wrong or _problems(job, told, options):
        reader.problem(f"{file.where} has {problem}")
    if wrong:
        return dict(ours)
    _say_replaced(reader, file, told, ours)
    values = {**told, **{name: ours[name] for name in _PLACE}, **{name: ours[name] for name in _WHERE if told.get(name) is None}}
    if job.accelerator == "cpu":
        values["use_cpu"] = True
    if told.get("distributed_type") in _ONE_PROCESS and job.world_size == 1:
        values["distributed_type"] = ours["distributed_type"]  # one rank is started like many
    if _by_deepspeed(told, options) and len(job.nodes) > 1 and f"--{_LAUNCHER}" not in options:
        own = told.get("deepspeed_config") or {}
        values["deepspeed_config"] = {**own, _LAUNCHER: own.get(_LAUNCHER) or _OWN_NODE[0]}
    return values


def _read(reader: Reader, file: Own) -> dict[str, Any] | None:
    try:
        text = reader.files.text(file.path, MOST_BYTES)
        if text is None:
            reader.problem(f"{file.where}: no such file, or none that can be read: expected accelerate's configuration at {file.path}")
        return None if text is None else read.loads(text, file.path)
    except (ValueError, RecursionError) as error:
        reader.problem(f"{file.where}: {error}")
    return None


def _say_replaced(reader: Reader, file: Own, told: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    """machine_rank is the same on all nodes, where all have one file."""
    others = [name for name in _PLACE if name != "machine_rank" and told.get(name) is not None and str(told[name]) != str(ours[name])]
    if told.get("use_cpu") is False and ours["use_cpu"]:
        others.append("use_cpu")
    if others:
        said = ", ".join(f"{name} {showing.clipped(str(told[name]))}, in place of which stands {ours[name]}" for name in others)
        reader.warn(f"{file.where} has {said}: as this job has it")


def _wrong_kinds(told: Mapping[str, Any]) -> Iterator[str]:
    for name in ("deepspeed_config", "fsdp_config", "mpirun_config"):
        if not isinstance(told.get(name) or {}, dict):
            yield f"{name} {showing.clipped(str(told[name]))!r}: expected keys below it"


def _problems(job: Job, told: Mapping[str, Any], options: set[str]) -> Iterator[str]:
    environment, kind = told.get("compute_environment"), told.get("distributed_type")
    if environment not in (None, "LOCAL_MACHINE"):
        yield f"compute_environment {environment}, by which each node would submit a job: expected LOCAL_MACHINE"
    if kind is False:
        yield "distributed_type NO without quotes, which is false in YAML: expected a type, such as MULTI_GPU"
    by_mpi = "--mpirun_hostfile" in options or (len(job.nodes) == 1 and bool((told.get("mpirun_config") or {}).get("mpirun_hostfile")))
    if kind in _ONE_PROCESS and job.world_size > 1 and not options.intersection(_WAYS) and not by_mpi:
        yield (
            f"distributed_type {kind}, with which accelerate starts one process on each node, which trains alone, where "
            f"{job.world_size} ranks are planned: expected MULTI_GPU, which on CPUs starts ranks too (with use_cpu: true)"
        )
    devices = [each for each in str(told.get("gpu_ids") or "all").split(",") if each.strip()]
    if "--gpu_ids" not in options and devices != ["all"] and len(devices) < job.node.slots:
        wanted = f"{counted(job.node.slots, 'rank')} of this node need one each"
        yield f"gpu_ids {showing.clipped(str(told['gpu_ids']))}, which are {len(devices)}, where {wanted}: expected all"
    launcher = (told.get("deepspeed_config") or {}).get(_LAUNCHER)
    if _by_deepspeed(told, options) and len(job.nodes) > 1 and f"--{_LAUNCHER}" not in options and launcher not in (None, *_OWN_NODE):
        yield (
            f"{_LAUNCHER} {launcher}, by which each of {len(job.nodes)} nodes would start the ranks of all: expected standard, or add "
            f"--{_LAUNCHER} standard"
        )


def _by_deepspeed(told: Mapping[str, Any], options: set[str]) -> bool:
    return "--use_deepspeed" in options or (told.get("distributed_type") == "DEEPSPEED" and not options.intersection(_WAYS))
