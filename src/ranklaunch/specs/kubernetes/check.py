"""Check of a user's objects in Kubernetes' form.

An API server refuses wrong parts. Without this check, they are dropped silently if an engine's definition does not look into pods.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping

from ranklaunch.errors import nearest
from ranklaunch.showing import shown
from ranklaunch.specs import keys
from ranklaunch.specs.kubernetes.fields import FIELDS

# Types with exactly one field, apart from the fields named here.
ONE_OF: Mapping[str, tuple[str, ...]] = {
    "EnvFromSource": ("prefix",), "EnvVarSource": (), "Volume": ("name",), "VolumeProjection": (),
}  # fmt: skip
# Fields of a pod's spec that are made from other values, each with the key.
MADE_FROM: Mapping[str, str] = {
    "activeDeadlineSeconds": "lifecycle.deadlineSeconds", "affinity": "scheduling.affinity", "containers": "script, image and the like",
    "hostNetwork": "network.hostNetwork", "imagePullSecrets": "image.pullSecrets", "initContainers": "initContainers",
    "nodeSelector": "scheduling.nodeSelector", "priorityClassName": "scheduling.priorityClass", "schedulerName": "scheduling.schedulerName",
    "serviceAccountName": "serviceAccountName", "terminationGracePeriodSeconds": "lifecycle.gracePeriodSeconds",
    "tolerations": "scheduling.tolerations", "volumes": "volumes", "restartPolicy": "restart.maxRestarts",
}  # fmt: skip
COMMON = {"Volume": "such as persistentVolumeClaim, hostPath, nfs or emptyDir"}
SHOWN = 60  # characters of a shown value
QUANTITY = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?"


@functools.lru_cache(maxsize=1)
def types() -> Mapping[str, Mapping[str, str]]:
    """Return the fields of each type with their kinds; the kind of a required field ends with !."""
    lines = re.sub(r"\n +", " ", FIELDS).splitlines()
    parts = (line.partition(": ") for line in lines)
    return {name: dict(_field(word) for word in words.split()) for name, _, words in parts}


def _field(word: str) -> tuple[str, str]:
    name, _, kind = word.partition("=")
    return (name[:-1], f"{kind}!") if name.endswith("!") else (name, kind)


def problems(path: str, kind: str, value: object) -> Iterator[str]:
    """Yield each problem with its place. kind: a type's name, a list of the type ([]), or a map of the type ({})."""
    kind = kind.rstrip("!")
    if kind.endswith("[]"):
        yield from _in_list(path, kind[:-2], value)
    elif kind.endswith("{}"):
        yield from _in_map(path, kind[:-2], value)
    elif kind in types():
        yield from _in_object(path, kind, value)
    elif kind in SCALARS:
        fits, expected = SCALARS[kind]
        if not fits(value):
            shown_value = repr(value) if kind == "name" else _shown(path, value)  # a Secret's name is no secret
            yield f"{path}: expected {expected}, found {shown_value}"
    elif kind != "anything" and value not in kind.split("|"):
        yield f"{path}={_shown(path, value)}: expected {_either(kind.split('|'))}"


def _in_list(path: str, kind: str, value: object) -> Iterator[str]:
    if not isinstance(value, (list, tuple)):
        yield f"{path}={_shown(path, value)}: expected a list"
        return
    for index, each in enumerate(value):
        yield from problems(f"{path}[{index}]", kind, each)


def _in_map(path: str, kind: str, value: object) -> Iterator[str]:
    if not isinstance(value, Mapping):
        yield f"{path}={_shown(path, value)}: expected a map"
        return
    for name, each in value.items():
        yield from problems(f"{path}.{name}", kind, each)


def _in_object(path: str, kind: str, value: object) -> Iterator[str]:
    fields = types()[kind]
    if not isinstance(value, Mapping):
        yield f"{path}={_shown(path, value)}: expected an object with {_either(list(fields))}"
        return
    present = {name: each for name, each in value.items() if each is not None}  # Kubernetes ignores null too
    for name, each in present.items():
        if name in fields:
            yield from problems(f"{path}.{name}", fields[name], each)
        else:
            yield f"{path}.{name}: {_unknown(kind, str(name), fields)}"
    yield from (f"{path}.{name}: required" for name, holds in fields.items() if holds.endswith("!") and name not in present)
    if present.keys() <= fields.keys():  # else an unknown name may be a misspelt one of them
        yield from _one(path, kind, list(present))


def _unknown(kind: str, name: str, fields: Mapping[str, str]) -> str:
    if kind == "PodTemplate" and name in MADE_FROM:
        return f"made from {MADE_FROM[name]}; set that"
    return f"unknown key{nearest(name, fields) or f': expected {_either(list(fields))}'}"


def _one(path: str, kind: str, names: list[str]) -> Iterator[str]:
    if kind == "EnvVar" and {"value", "valueFrom"} <= set(names):
        yield f"{path}: expected one of value and valueFrom"
    if kind not in ONE_OF:
        return
    legal = [name for name in types()[kind] if name not in ONE_OF[kind]]
    chosen = [name for name in names if name in legal]
    if len(chosen) != 1:
        described = ", ".join(chosen) or "none"
        what = "one source" if kind == "Volume" else "one of them"
        yield f"{path}: expected {what}, {COMMON.get(kind, ', '.join(legal))}, found {described}"


def _either(words: list[str]) -> str:
    return f"one of {', '.join(words)}" if len(words) > 1 else words[0]


def _shown(path: str, value: object) -> str:
    text = shown(path, value) if isinstance(value, str) else str(value)
    return repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}...")


def _is_whole(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == int(value)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_quantity(value: object) -> bool:
    return _is_number(value) or (isinstance(value, str) and bool(re.fullmatch(QUANTITY, value)))


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(re.fullmatch(keys.NAMES, value))


SCALARS: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "string": (lambda value: isinstance(value, str), "a string; a number or true needs quotes around it"),
    "integer": (_is_whole, "an integer"),
    "boolean": (lambda value: isinstance(value, bool), "true or false"),
    "quantity": (_is_quantity, "a quantity such as 4 or 16Gi"),
    "word": (lambda value: isinstance(value, str) or _is_whole(value), "a string or an integer"),
    "name": (_is_name, f"the name of an object: {keys.FORMS[keys.NAMES]}"),
}
