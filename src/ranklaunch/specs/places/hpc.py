"""Scripts for LSF, PBS and Flux. A script runs on the first host, and starts one ranklaunch on each host."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ranklaunch.specs import keys
from ranklaunch.specs import pod as common
from ranklaunch.specs.model import JobSpec
from ranklaunch.specs.places.clouds import replaced
from ranklaunch.specs.places.quantities import MEBI, in_units
from ranklaunch.specs.slurm import of_script, ports_of_job


def shape(spec: JobSpec) -> dict[str, Any]:
    return {
        **of_script(spec),
        "directives": [*DIRECTIVES[spec.engine](spec), *spec.batch.directives],
        "folder": spec.working_dir,
        # On shared hosts, another job may have the same first host. Flux gives hosts to one job alone.
        "ports": list(ports_of_job(spec)) if spec.engine != "flux" or common.has_several_nodes(spec) else [],
        "gpus": spec.devices_per_node if spec.device.kind == "gpu" else 0,
        "cores": _cores(spec),
        "command": common.command(spec),
    }


def _cores(spec: JobSpec) -> int:
    return int(spec.resources.cpu) if re.fullmatch(keys.CPUS, spec.resources.cpu) else 1


def _lsf(spec: JobSpec) -> Iterator[str]:
    batch, cores = spec.batch, _cores(spec)
    yield f"-J {spec.name}"
    yield f"-n {spec.nodes * cores}"
    yield f'-R "span[ptile={cores}]"'
    yield from (f'-gpu "num={spec.devices_per_node}"' for _ in [1] if spec.device.kind == "gpu")
    yield from (f"-W {minutes // 60}:{minutes % 60:02}" for minutes in [_minutes(spec)] if minutes)
    yield from _options(("-q", batch.queue), ("-P", batch.account), ("-o", batch.output))


def _pbs(spec: JobSpec) -> Iterator[str]:
    """Yield the directives for PBS. With mpiprocs=1, the node file has each host once."""
    batch = spec.batch
    memory = f":mem={in_units(spec.resources.memory, MEBI)}mb" if spec.resources.memory else ""
    gpus = f":ngpus={spec.devices_per_node}" if spec.device.kind == "gpu" else ""
    yield f"-N {spec.name}"
    yield f"-l select={spec.nodes}:ncpus={_cores(spec)}{gpus}{memory}:mpiprocs=1"
    yield "-l place=scatter"
    yield from (f"-l walltime={minutes // 60:02}:{minutes % 60:02}:00" for minutes in [_minutes(spec)] if minutes)
    yield "-j oe"
    yield "-r n"
    yield from _options(("-q", batch.queue), ("-A", batch.account), ("-o", batch.output))


def _flux(spec: JobSpec) -> Iterator[str]:
    batch = spec.batch
    yield f"--job-name={spec.name}"
    yield f"-N {spec.nodes}"
    yield f"-n {spec.nodes}"
    yield f"-c {_cores(spec)}"
    yield from (f"-g {spec.devices_per_node}" for _ in [1] if spec.device.kind == "gpu")
    yield "--exclusive"
    yield from (f"-t {minutes}m" for minutes in [_minutes(spec)] if minutes)
    yield from _options(("--queue", batch.queue), ("--bank", batch.account), ("--output", batch.output), sep="=")


DIRECTIVES = {"lsf": _lsf, "pbs": _pbs, "flux": _flux}


def _minutes(spec: JobSpec) -> int:
    return math.ceil(spec.lifecycle.deadline_seconds / 60)


def _options(*pairs: tuple[str, str], sep: str = " ") -> Iterator[str]:
    return (f"{name}{sep}{text}" for name, text in pairs if text)


# Problems

# Options that the script sets itself, each with its key.
ONE_OF: Mapping[str, Mapping[str, str]] = {
    "lsf": {"-J": "name", "-n": "nodes and resources.cpu", "-gpu": "devicesPerNode", "-W": "lifecycle.deadlineSeconds"},
    "pbs": {"-N": "name", "-lselect": "nodes, devicesPerNode and resources", "-lwalltime": "lifecycle.deadlineSeconds", "-j": "itself"},
    "flux": {
        "--job-name": "name", "-N": "nodes", "--nodes": "nodes", "-n": "nodes", "--nslots": "nodes", "-g": "devicesPerNode",
        "--gpus-per-slot": "devicesPerNode", "-c": "resources.cpu", "--cores-per-slot": "resources.cpu", "-t": "lifecycle.deadlineSeconds",
        "--time-limit": "lifecycle.deadlineSeconds",
    },
}  # fmt: skip


def problems(spec: JobSpec) -> Iterator[str]:
    yield from _directives(spec)
    yield from replaced(spec)


def _directives(spec: JobSpec) -> Iterator[str]:
    for directive in spec.batch.directives:
        if re.search(r"[^ -~]", directive) or not directive.startswith("-"):
            yield f"batch.directives: {directive[:60]!r}: expected an option in one line, beginning with a dash"
            continue
        if spec.engine == "pbs" and _is(directive, "-J"):
            yield f"batch.directives: {directive!r}: all jobs of an array would get the same ports by their one number; submit them singly"
        own_option = next((name for name in ONE_OF[spec.engine] if _is(directive, name)), "")
        if own_option:
            yield f"batch.directives: {directive!r}: the script has {own_option} already, by {ONE_OF[spec.engine][own_option]}"


def _is(directive: str, name: str) -> bool:
    """Return True if a directive is the option `name`. The value of a one-letter option may follow without a space."""
    joined = re.sub(r"^(-[A-Za-z])\s+", r"\1", directive)
    if name.startswith("--"):
        return directive.partition("=")[0].split(" ")[0] == name
    if len(name) > 2 and not name.startswith("-l"):
        return directive.split(" ")[0] == name
    return joined.startswith(name) and not (name == "-n" and joined.startswith("-network"))
