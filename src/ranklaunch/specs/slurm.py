"""The script for sbatch: its directives, the options of srun, and contradictions between them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ranklaunch.env.settings import BY_MPI, FIRST_PORT, JOBS, PORTS_OF_A_JOB
from ranklaunch.specs import pod as common
from ranklaunch.specs import sbatch
from ranklaunch.specs.image import is_file
from ranklaunch.specs.model import UNLIMITED, JobSpec
from ranklaunch.specs.places.quantities import MEBI, in_units

MOST_S_EARLY = 60  # Slurm may send the signal of --signal this much before its time
MOST_S_OF_SIGNAL = 65535
# A directive for a signal to the script alone, which then asks the ranks to save.
SAVES = re.compile(r"--signal=(?:B|RB|BR):(?:SIG)?(USR1|USR2)(?:@([0-9]{1,5}))?")
S_BY_DEFAULT = 60  # before the time limit, if --signal has no time
S_OF_REQUEUE = 10  # between the end of the ranks and the time limit
ALONE_WITH_PORT = ("spawn", "pytorch", "accelerate", "deepspeed", "msrun", "jax", *BY_MPI)  # methods that need a port on a single node too
PORTS_OF_OTHERS = ("MA_TORCHRUN_MASTER_PORT", "MSRUN_MASTER_PORT")  # other variables that set the port of the rendezvous
EXPEDITED = "--requeue=expedite"  # needs Slurm 25.11 or newer

# Groups of options of which a script may have one, each with the key behind the script's own option.
ONE_OF: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("name", ("--job-name",)),
    ("nodes", ("--nodes",)),
    ("devicesPerNode, for the ranks of a node have one task", (
        "--ntasks-per-node", "--tasks-per-node", "--ntasks", "--ntasks-per-socket", "--ntasks-per-core", "--ntasks-per-gpu",
    )),
    ("slurm.partition", ("--partition",)),
    ("slurm.account", ("--account",)),
    ("slurm.qos", ("--qos",)),
    ("devicesPerNode, unless slurm.devices is none", ("--gpus-per-node", "--gpus", "--gpus-per-task", "--gpus-per-socket", "--gres")),
    ("resources.cpu", ("--cpus-per-task", "--cpus-per-gpu")),
    ("resources.memory", ("--mem", "--mem-per-cpu", "--mem-per-gpu")),
    ("slurm.time or lifecycle.deadlineSeconds", ("--time",)),
    ("slurm.saveBefore", ("--signal",)),
    ("restart.maxRestarts (0: --no-requeue)", ("--requeue", "--no-requeue")),
    ("slurm.output", ("--output",)),
)  # fmt: skip
# Options of srun that the script sets itself, each with the reason or the key.
OF_SRUN: Mapping[str, str] = {
    "--ntasks": "one task on each node; devicesPerNode is the number of ranks",
    "--ntasks-per-node": "one task on each node; devicesPerNode is the number of ranks",
    "--nodes": "set nodes",
    "--kill-on-bad-exit": "each node ends in its own time, with its verdict",
    "--wait": "each node ends in its own time, with its verdict",
    "--container-image": "set image, with slurm.container pyxis",
    "--container-mounts": "set volumes and volumeMounts, with slurm.container pyxis",
    "--container-workdir": "set workingDir, with slurm.container pyxis",
}
OF_GPUS = re.compile(r"(?:^|,)(?:gres:)?gpu(?:$|[:,=])")


def shape(spec: JobSpec) -> dict[str, Any]:
    """Return the values of the script's template."""
    return {
        **of_script(spec),
        "directives": [*_own_directives(spec), *spec.slurm.directives],
        "folder": spec.working_dir if spec.slurm.container == "none" else "",
        "ports": list(ports_of_job(spec)),
        "srun_options": list(_srun_options(spec)),
        "command": [*_container(spec), *common.command(spec)],
        "own_logs": spec.env.get("RANKLAUNCH_LOG_DIR", ""),
        "save": _save(spec),
        "comments": "--comment" not in names(spec.slurm.directives),
    }


def of_script(spec: JobSpec) -> dict[str, Any]:
    """Return the values that the scripts of all batch systems share."""
    return {
        "told": [f"{each['name']}={each['value']}" for each in common.environment(spec)],
        "jobs": JOBS,
        "each": PORTS_OF_A_JOB,
        "makes_key": common.has_several_nodes(spec) and not common.own_key(spec),
    }


# Directives


def _own_directives(spec: JobSpec) -> Iterator[str]:
    values = spec.slurm
    yield f"--job-name={spec.name}"
    yield f"--nodes={spec.nodes}"
    yield "--ntasks-per-node=1"
    yield from _given(partition=values.partition, account=values.account, qos=values.qos)
    yield from _devices(spec)
    yield from (f"--cpus-per-task={spec.resources.cpu}" for _ in [1] if spec.resources.cpu)
    yield from _given(mem=_memory(spec.resources.memory), time=values.time or _limit(spec.lifecycle.deadline_seconds))
    if values.save_before:
        yield f"--signal=B:USR1@{values.save_before}"
    elif common.has_sigterm_before_limit(spec):
        yield f"--signal=TERM@{min(spec.lifecycle.grace_period_seconds, MOST_S_OF_SIGNAL)}"
    if not (spec.restart.max_restarts and EXPEDITED in values.directives):
        yield "--requeue" if spec.restart.max_restarts else "--no-requeue"
    yield from _given(output=values.output)
    if spec.restart.max_restarts and "--open-mode" not in names(values.directives):
        yield "--open-mode=append"  # by default each start empties the output file


def warning_of(spec: JobSpec) -> tuple[str, int] | None:
    """Return the signal that warns the script, and the seconds from it to the time limit; None if the script handles no warning."""
    if spec.slurm.save_before:
        return "USR1", spec.slurm.save_before
    directive = next(filter(None, map(SAVES.fullmatch, spec.slurm.directives)), None)
    if not directive or spec.slurm.container == "pyxis":
        return None
    return directive[1], int(directive[2] or S_BY_DEFAULT)


def _save(spec: JobSpec) -> dict[str, Any] | None:
    """Return the script's reaction to a warning: the signal, the command that asks the ranks to save, and its deadline in seconds."""
    warning = warning_of(spec)
    if not warning:
        return None
    signal, seconds = warning
    command = [*_container(spec), "ranklaunch", "save"]
    return {"signal": signal, "command": command, "deadline_s": max(1, seconds // 2, seconds - S_OF_REQUEUE)}


def names(options: Iterable[str]) -> list[str]:
    """Return the names of options, without their values."""
    return [option.partition("=")[0] for option in options]


def _given(**values: str) -> Iterator[str]:
    return (f"--{name}={value}" for name, value in values.items() if value)


def _devices(spec: JobSpec) -> Iterator[str]:
    how = spec.slurm.devices or {"gpu": "gpus-per-node", "npu": "gres", "cpu": "none"}[spec.device.kind]
    if spec.devices_per_node and how == "gpus-per-node":
        yield f"--gpus-per-node={spec.devices_per_node}"
    elif spec.devices_per_node and how == "gres":
        yield f"--gres={spec.device.resource_name or spec.device.kind}:{spec.devices_per_node}"


def _memory(quantity: str) -> str:
    """Return a quantity of memory in Slurm's form. Slurm's M and G are powers of two."""
    if not quantity:
        return ""
    megabytes = max(1, in_units(quantity, MEBI))
    return f"{megabytes}M" if megabytes % 1024 else f"{megabytes // 1024}G"


def _limit(seconds: int) -> str:
    if not seconds:
        return ""
    hours, minutes = divmod(math.ceil(seconds / 60), 60)
    days, hours = divmod(hours, 24)
    return f"{f'{days}-' if days else ''}{hours:02}:{minutes:02}:00"


def seconds_of(time: str) -> int | None:
    """Return the seconds of a time in sbatch's form, None for a text of another form.

    Forms: minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes, days-hours:minutes:seconds.
    """
    match = re.fullmatch(r"(?:([0-9]{1,6})-)?([0-9]{1,9})(?::([0-9]{1,9}))?(?::([0-9]{1,9}))?", time)
    if not match:
        return None
    days, *rest = (int(part) for part in match.groups(default="0"))
    parts = sum(part is not None for part in match.groups()[1:])
    hours, minutes, seconds = rest if match[1] or parts == 3 else (0, *rest[:2])
    return days * 86400 + hours * 3600 + minutes * 60 + seconds


# srun


def ports_of_job(spec: JobSpec) -> Iterator[tuple[str, int]]:
    """Yield each variable for a port that the script derives from the job's number, with the first port of its range.

    Jobs with the same first machine then have different ports.
    """
    several, network = common.has_several_nodes(spec), spec.network
    by_ssh = spec.mode in (*BY_MPI, "deepspeed")
    master = (several or spec.mode in ALONE_WITH_PORT) and not set(PORTS_OF_OTHERS) & set(spec.env)
    ports = (
        ("RANKLAUNCH_MASTER_PORT", master and not network.master_port),
        ("RANKLAUNCH_MUSTER_PORT", several and not network.muster_port),
        ("RANKLAUNCH_SSHD_PORT", several and by_ssh and not network.ssh_port),
    )
    yield from ((name, FIRST_PORT + place) for place, (name, is_wanted) in enumerate(ports) if is_wanted)


def _srun_options(spec: JobSpec) -> Iterator[str]:
    """Yield the options of srun.

    An --export directive of sbatch holds for srun too. srun then gets --export=ALL, so that the script's variables reach the ranks.
    """
    options = names(spec.slurm.srun_options)
    yield from (option for option in ("--cpu-bind=none",) if "--cpu-bind" not in options)
    yield from ("--export=ALL" for _ in [1] if "--export" in names(spec.slurm.directives) and "--export" not in options)
    yield from spec.slurm.srun_options


def _container(spec: JobSpec) -> list[str]:
    image = common.image(spec)
    if spec.slurm.container == "pyxis":
        options = {"image": _enroot_name(image), "mounts": ",".join(_mounts(spec)), "workdir": spec.working_dir}
        # srun replaces a command by its path on this node, if it exists here. After env, the command is looked up in the container.
        return [*(f"--container-{name}={value}" for name, value in options.items() if value), "env"]
    if spec.slurm.container == "apptainer":
        binds = [word for mount in _mounts(spec) for word in ("--bind", mount)]
        folder = ["--pwd", spec.working_dir] if spec.working_dir else []
        by_docker = "" if is_file(image) or "://" in image else "docker://"
        return ["apptainer", "exec", *(["--nv"] if spec.device.kind == "gpu" else []), *binds, *folder, f"{by_docker}{image}"]
    return []


def _enroot_name(image: str) -> str:
    """Return an image's name in Enroot's form, with # between registry and path."""
    host, slash, path = image.partition("/")
    is_registry = slash and ("." in host or ":" in host or host == "localhost")
    return f"{host}#{path}" if is_registry and not (is_file(image) or "://" in image or "#" in image) else image


def _mounts(spec: JobSpec) -> Iterator[str]:
    """Yield SOURCE:TARGET for each mount, with :ro if it is read-only. The volumes must be correct."""
    volumes: dict[object, Any] = {volume["name"]: volume["hostPath"] for volume in spec.volumes}
    for mount in spec.volume_mounts:
        folder = volumes[mount["name"]]["path"].rstrip("/")
        source = f"{folder}/{mount['subPath']}" if mount.get("subPath") else folder or "/"
        yield f"{source}:{mount['mountPath']}{':ro' if mount.get('readOnly') else ''}"


# Problems


def problems(spec: JobSpec) -> Iterator[str]:
    """Yield what Slurm would refuse, or take in another sense."""
    yield from _time_limit(spec)
    yield from _directives(spec)
    yield from _options_of_srun(spec)
    yield from _image(spec)
    yield from _volumes(spec)


def _time_limit(spec: JobSpec) -> Iterator[str]:
    deadline, time = spec.lifecycle.deadline_seconds, spec.slurm.time_limit
    path = f"lifecycle.deadlineSeconds={deadline}"
    limit = seconds_of(time)
    if spec.slurm.time and limit is None and spec.slurm.time.lower() not in UNLIMITED:
        forms = "minutes, hours:minutes:seconds or days-hours:minutes:seconds, such as 90, 12:00:00 or 2-00:00:00"
        yield f"slurm.time={time!r}: expected {forms}"
    yield from _time_for_signal(spec, path, deadline)
    yield from _time_for_signal(spec, f"{'slurm.time' if spec.slurm.time else 'slurm.directives: --time'}={time}", limit or 0)


def _time_for_signal(spec: JobSpec, path: str, seconds: int) -> Iterator[str]:
    save_before = spec.slurm.save_before
    if save_before and 0 < seconds <= save_before + MOST_S_EARLY:
        early = f"{MOST_S_EARLY} seconds and slurm.saveBefore={save_before} before it"
        yield f"{path}: expected more than {save_before + MOST_S_EARLY} seconds, for Slurm warns up to {early}"
        return
    grace = spec.lifecycle.grace_period_seconds
    if 0 < seconds <= grace + MOST_S_EARLY and "--signal" not in names(spec.slurm.directives):
        how = f"{MOST_S_EARLY} seconds and lifecycle.gracePeriodSeconds={grace} before it"
        yield f"{path}: expected more than {grace + MOST_S_EARLY} seconds, for Slurm sends SIGTERM up to {how}"


def _directives(spec: JobSpec) -> Iterator[str]:
    """Refuse directives that contradict each other or the script's own: of two, sbatch silently takes the last."""
    own_directives, directives = list(_own_directives(spec)), spec.slurm.directives
    for index, directive in enumerate(directives):
        meaning = _meaning(directive)
        same_in_script = next((option for option in own_directives if _meaning(option) & meaning), "")
        before = next((option for option in directives[:index] if _meaning(option) & meaning), "")
        if same_in_script:
            name = names([same_in_script])[0]
            value = next((value for value, group in ONE_OF if name in group), "itself")
            yield f"slurm.directives: {directive!r}: the script has {name} already, by {value}"
        elif before:
            yield f"slurm.directives: {directive!r}: {names([before])[0]} is given before; leave one out"
        elif directive.lstrip("-") in sbatch.NEEDS_VALUE:
            yield f"slurm.directives: {directive!r}: expected a value, as in {directive}=VALUE"
        elif names([directive]) == ["--chdir"] and spec.working_dir:
            yield f"slurm.directives: {directive!r}: the script changes to workingDir already; leave one out"
        elif names([directive]) == ["--wrap"]:
            yield f"slurm.directives: {directive!r}: not for a script; the program stands at the end, after --"


def _meaning(option: str) -> set[str]:
    """Return an option's name and the keys for it. Two options with a common element exclude each other.

    A --gres without GPUs has its name alone: it may stand beside options for GPUs.
    """
    name, _, text = option.partition("=")
    if name == "--gres" and not OF_GPUS.search(text):
        return {name}
    return {name, *(value for value, group in ONE_OF if name in group)}


def _options_of_srun(spec: JobSpec) -> Iterator[str]:
    options = names(spec.slurm.srun_options)
    for option, name in zip(spec.slurm.srun_options, options):
        if name in OF_SRUN:
            yield f"slurm.srunOptions: {option!r}: the script sets it itself ({OF_SRUN[name]})"
        if name == "--export" and not re.match("--export=ALL(?:,|$)", option):
            yield f"slurm.srunOptions: {option!r}: expected --export=ALL; without it the script's variables do not reach ranklaunch"
    for name in sorted({name for name in options if options.count(name) > 1}):
        yield f"slurm.srunOptions: {name} is given {options.count(name)} times"


def _image(spec: JobSpec) -> Iterator[str]:
    if is_file(spec.image.repository) and (spec.image.tag or spec.image.digest):
        yield f"image.repository={spec.image.repository!r}: a file has no image.tag and no image.digest"


def _volumes(spec: JobSpec) -> Iterator[str]:
    if spec.slurm.container == "none":
        return
    volume_names = [volume.get("name") for volume in spec.volumes]
    for volume in spec.volumes:
        yield from (f"volumes: {volume.get('name')!r}: {why}" for why in _volume(volume))
    for name in [name for index, name in enumerate(volume_names) if name in volume_names[:index]]:
        yield f"volumes: {name!r}: expected different names"
    for mount in spec.volume_mounts:
        if mount.get("name") not in volume_names:
            yield f"volumeMounts: name {mount.get('name')!r}: no volume of this name in volumes"
        yield from (f"volumeMounts: {mount.get('name')!r}: {why}" for why in _of_mount(mount))


def _volume(volume: Mapping[str, object]) -> Iterator[str]:
    source = volume.get("hostPath")
    if not isinstance(volume.get("name"), str) or set(volume) != {"name", "hostPath"} or not isinstance(source, Mapping):
        yield "expected a name and a hostPath; no other volume can be mounted with slurm"
    elif str(source.get("type", "")).endswith("OrCreate"):
        yield "slurm does not create it; expected a hostPath that exists, without its type"
    elif not _is_plain_path(source.get("path")):
        yield "expected a hostPath.path from the root without commas, colons and spaces"


def _of_mount(mount: Mapping[str, object]) -> Iterator[str]:
    if not _is_plain_path(mount.get("mountPath")):
        yield "expected a mountPath from the root without commas, colons and spaces"
    sub_path = mount.get("subPath", "")
    if not isinstance(sub_path, str) or not _is_plain_path(f"/{sub_path}") or sub_path.startswith("/"):
        yield "expected a relative subPath without commas, colons and spaces"
    if not isinstance(mount.get("readOnly", False), bool):
        yield "expected readOnly true or false"
    for name in sorted(set(mount) - {"name", "mountPath", "readOnly", "subPath"}):
        yield f"{name}: slurm has no such option of a mount; leave it out"


def _is_plain_path(path: object) -> bool:
    return isinstance(path, str) and re.fullmatch(r"/[^,:\s\0]*", path) is not None


# Warnings


def warnings(spec: JobSpec) -> Iterator[str]:
    """Yield warnings about legal values that may not do what the author wants."""
    values = spec.slurm
    if values.container == "pyxis" and "RANKLAUNCH_LOG_DIR" not in spec.env:
        yield (
            "logs and verdict are lost with the container, unless its working folder is mounted: set env.RANKLAUNCH_LOG_DIR to a folder "
            "that volumeMounts brings"
        )
    if any(directive.startswith("--signal=B:") for directive in values.directives) and not warning_of(spec):
        yield (
            "slurm.directives: --signal=B: reaches only the script, which does not pass the signal on; leave the B: out, or let the script "
            "ask the ranks to save: --signal=B:USR1@300, without pyxis"
        )
    yield from _silent_values(spec)
    yield from _save_warnings(spec)
    if warning_of(spec) and not spec.restart.max_restarts:
        yield "restart.maxRestarts is 0: after the save before the time limit the job ends, and is not requeued; set it (--max-restarts)"
    if EXPEDITED in values.directives and spec.restart.max_restarts:
        yield f"slurm.directives: {EXPEDITED} needs Slurm 25.11 or newer; an older sbatch refuses the script"
    if spec.devices_per_node > 1 and not spec.resources.cpu and not set(names(values.directives)) & set(MORE_CPUS):
        yield (
            f"resources.cpu is not set: Slurm gives a task, here all {spec.devices_per_node} ranks of a node, one CPU, unless the cluster "
            'gives more by itself; set it (--cpu), or slurm.directives=["--exclusive"]'
        )


def _save_warnings(spec: JobSpec) -> Iterator[str]:
    """Yield what is missing for a save before the time limit: a way to ask the ranks, enough time, or the limit."""
    warning = warning_of(spec)
    if not warning:
        return
    path = f"slurm.saveBefore={spec.slurm.save_before}" if spec.slurm.save_before else "slurm.directives: --signal=B:"
    if not _is_asked(spec):
        yield f"{path}: ranks are only stopped, and not asked to save before: {HOW_TO_SAVE}"
    if warning[1] < FEW_S:
        yield f"{path}: {warning[1]} seconds are little for a save and the stop of all ranks; take more, such as 300"
    if not (spec.slurm.time_limit or spec.lifecycle.deadline_seconds):
        yield f"{path}: no time limit is set, so Slurm warns before the partition's limit, if there is one; set slurm.time"


def _is_asked(spec: JobSpec) -> bool:
    """Return True if the specification has a signal or a file that asks ranks to save."""
    by_setup = any(name in line for name in BY_SAVE for line in spec.slurm.setup)
    return bool(spec.save.signal or spec.save.file or by_setup or set(BY_SAVE) & set(spec.env))


def _silent_values(spec: JobSpec) -> Iterator[str]:
    """Yield values that Slurm silently understands in another way than their author may have meant."""
    for rule in (_minutes, _decimal_memory, _risky_directives, _without_devices, _same_ports):
        yield from rule(spec)


def _minutes(spec: JobSpec) -> Iterator[str]:
    time, path = spec.slurm.time_limit, "slurm.time" if spec.slurm.time else "slurm.directives: --time"
    minutes = re.fullmatch(r"([0-5]?[0-9])|([0-9]+):[0-9]+", time)
    if minutes:
        count = int(minutes[1] or minutes[2])
        yield f"{path}={time}: {count} minutes to sbatch; hours are {count}:00:00"


def _decimal_memory(spec: JobSpec) -> Iterator[str]:
    memory = spec.resources.memory
    if memory.endswith(DECIMAL):
        binary = f"{memory[:-1]}{memory[-1].upper()}"
        in_slurm = f"{_memory(memory)} to Slurm, whose units are powers of two"
        yield f"resources.memory={memory}: {in_slurm}; {binary}i is {binary} there"


def _risky_directives(spec: JobSpec) -> Iterator[str]:
    directives = spec.slurm.directives
    if spec.restart.max_restarts and "--open-mode=truncate" in directives:
        yield "slurm.directives: --open-mode=truncate: each start empties the output of the starts before; leave it out"
    for directive in directives:
        if re.match("--signal=(?:R:)?(?:SIG)?USR[12]", directive) and not _is_asked(spec):
            yield f"slurm.directives: {directive}: ranks that do not catch the signal die of it; {HOW_TO_SAVE}"


def _without_devices(spec: JobSpec) -> Iterator[str]:
    has_devices = any(each.startswith(BY_OWN_DEVICES) for each in spec.slurm.directives)
    if spec.slurm.devices == "none" and spec.device.kind != "cpu" and not has_devices:
        example = 'put an option of your own into slurm.directives, such as ["--gres=gpu:8"]'
        yield f"slurm.devices=none: the script asks for no devices; {example}"


def _same_ports(spec: JobSpec) -> Iterator[str]:
    network = spec.network
    ports = [each for each in (network.master_port, network.muster_port, network.ssh_port) if each]
    if len(set(ports)) < len(ports):
        names = "network.masterPort, network.musterPort and network.sshPort"
        yield f"{names}: expected different ports, found {', '.join(map(str, ports))}"


HOW_TO_SAVE = "set save.signal or save.file to what your trainer saves on"
FEW_S = 30  # usually too few for a save
DECIMAL = ("k", "M", "G", "T")
BY_OWN_DEVICES = ("--gres", "--gpus", "--exclusive", "--tres-per", "--constraint")
BY_SAVE = ("RANKLAUNCH_SAVE_SIGNAL", "RANKLAUNCH_SAVE_FILE")
# Options of sbatch that give a task more than one CPU.
MORE_CPUS = ("--cpus-per-task", "--cpus-per-gpu", "--tres-per-task", "--exclusive")
