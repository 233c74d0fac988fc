"""Check of the user's extra containers, environment and mounts. The form of each object is checked before (check.py)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ranklaunch.specs import keys
from ranklaunch.specs.model import JobSpec
from ranklaunch.specs.pod import CONTAINERS, DERIVED, set_by_values

OF_RUNNING = ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe")  # fields that an init container cannot have


def mounts(path: str, values: object, volumes: Sequence[object], taken: Sequence[str] = ()) -> Iterator[str]:
    """Yield the problems of volume mounts. volumes: names of known volumes. taken: paths of ranklaunch's own mounts."""
    volume_mounts = objects(values)
    for mount in volume_mounts:
        if mount.get("name") is not None and mount["name"] not in volumes:
            yield f"{path}: name {mount.get('name')!r}: no volume of this name in volumes"
        if mount.get("mountPath") is not None and not str(mount["mountPath"]).startswith("/"):
            yield f"{path}: mountPath {mount['mountPath']!r}: expected a path from the root"
        sub_path = str(mount.get("subPath") or "")
        if sub_path.startswith("/") or ".." in sub_path.split("/"):
            yield f"{path}: subPath {sub_path!r}: expected a path within the volume"
    paths = [str(mount.get("mountPath")) for mount in volume_mounts]
    if len({*paths, *taken}) < len(paths) + len(taken):
        yield f"{path}: expected different mountPaths" + (f"; ranklaunch's own: {', '.join(taken)}" if taken else "")


def problems(spec: JobSpec, volumes: Sequence[object]) -> Iterator[str]:
    """Yield the problems of extraEnv, initContainers and extraContainers. volumes: names of known volumes."""
    yield from _environment(spec)
    names: list[object] = [CONTAINERS.get(spec.engine, "train")]
    for place, containers in (("initContainers", spec.init_containers), ("extraContainers", spec.extra_containers)):
        for index, container in enumerate(containers):
            path = f"{place}[{index}]"
            yield from _container(path, container, volumes, ends=place == "initContainers" and not container.get("restartPolicy"))
            names.append(container.get("name"))
            if names.count(names[-1]) > 1:
                yield f"{path}.name={names[-1]!r}: another container has it"


def _container(path: str, container: Mapping[str, Any], volumes: Sequence[object], ends: bool) -> Iterator[str]:
    name = container.get("name")
    if isinstance(name, str) and not re.fullmatch(keys.LABEL, name):
        yield f"{path}.name={name!r}: expected {keys.FORMS[keys.LABEL]}"
    yield from (
        f"{path}.{field}: an init container ends before the program starts; use extraContainers"
        for field in OF_RUNNING
        if ends and field in container
    )
    yield from mounts(f"{path}.volumeMounts", container.get("volumeMounts"), volumes)
    yield from each_once(f"{path}.env", [each.get("name") for each in objects(container.get("env"))])


def _environment(spec: JobSpec) -> Iterator[str]:
    names, set_by = [each.get("name") for each in spec.extra_env], set_by_values(spec)
    yield from each_once("extraEnv", names)
    for name in dict.fromkeys(names):
        if isinstance(name, str) and not re.fullmatch(keys.VARIABLE, name):
            yield f"extraEnv: name {name!r}: expected {keys.FORMS[keys.VARIABLE]}"
        if name in DERIVED:
            yield f"extraEnv: {name}: made from {DERIVED[str(name)]}; set that"
        elif name == "RANKLAUNCH_GRACE_S":
            yield f"extraEnv: {name}: made from lifecycle.gracePeriodSeconds; set that, or env.{name}"
        elif name in spec.env:
            yield f"extraEnv: {name}: env has it too; leave one of the two out"
        elif name in set_by:
            yield f"extraEnv: {name}: {set_by[str(name)]} sets it too; leave one of the two out"


def each_once(path: str, names: Sequence[object]) -> Iterator[str]:
    """Refuse names that are given twice."""
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    yield from (f"{path}: given twice: {name}" for name in twice)


def objects(value: object) -> list[Mapping[str, Any]]:
    """Return the objects of a list; nothing of a value in another form."""
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, (list, tuple)) else []
