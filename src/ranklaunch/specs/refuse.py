"""Contradictions between values of a specification that engines and their API servers do not refuse themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ranklaunch.specs import keys, refuse_kubernetes, slurm, variables
from ranklaunch.specs import rules as table
from ranklaunch.specs.image import what_is_wrong
from ranklaunch.specs.model import BY_SCRIPT, OF_KUBERNETES, JobSpec
from ranklaunch.specs.places import clouds, hpc
from ranklaunch.specs.pod import DERIVED, POOL_FLAVORS, environment, flavor, set_by_values

MOST_BYTES_OF_VARIABLE = 128 * 1024
MOST_MODELARTS_VARIABLES, MOST_MODELARTS_NAME, MOST_MODELARTS_VALUE = 100, 8192, 4096


def problems(spec: JobSpec) -> list[str]:
    """Return all problems, each with the path of the wrong value."""
    of_kind = refuse_kubernetes.OF_EACH if spec.engine in OF_KUBERNETES else ()
    rules = (*COMMON, *of_kind, "kinds", OF_ENGINE.get(spec.engine, _elsewhere))
    return [problem for rule in rules for problem in (table.problems(spec, rule) if isinstance(rule, str) else rule(spec))]


def _image(spec: JobSpec) -> Iterator[str]:
    image = spec.image
    beside = f"image.tag is {image.tag}" if image.tag else "image.digest is given" if image.digest else ""
    # Slurm's container tools have image names of their own forms.
    wrong = what_is_wrong(image.repository, beside) if spec.engine != "slurm" else ""
    if wrong:
        yield f"image.repository={image.repository!r}: {wrong}"


def _extra_devices(spec: JobSpec) -> Iterator[str]:
    for name, quantity in spec.device.extra.items():
        pattern = "[0-9]+" if "/" in name else keys.QUANTITY
        if not re.fullmatch(pattern, quantity):
            yield f"device.extra.{name}={quantity!r}: expected {'an integer' if '/' in name else 'a quantity such as 4 or 16Gi'}"


def _environment(spec: JobSpec) -> Iterator[str]:
    for name in sorted(set(spec.env) & set(DERIVED)):
        yield f"env.{name}: made from {DERIVED[name]}; set that"
    for name, path in set_by_values(spec).items():
        if name in spec.env:
            yield f"env.{name}: {path} sets it too; leave one of the two out"
    grace = spec.env.get("RANKLAUNCH_GRACE_S")
    if grace is not None and not spec.trainer.runtime:  # an existing runtime's pods have a period of their own
        yield from _grace(grace, spec.lifecycle.grace_period_seconds)


def _size(spec: JobSpec) -> Iterator[str]:
    """Refuse a variable that is longer than Linux allows: no program could be started with it."""
    for variable in environment(spec):
        size = len(f"{variable['name']}={variable.get('value', '')}".encode())
        if size >= MOST_BYTES_OF_VARIABLE:
            path = f"env.{variable['name']}" if variable["name"] in spec.env else f"nodes={spec.nodes}: {variable['name']}"
            yield f"{path}: {size} bytes, expected fewer than {MOST_BYTES_OF_VARIABLE}, Linux' limit for one variable"


def _grace(text: str, period: int) -> Iterator[str]:
    if re.fullmatch(r"[0-9]+(?:\.[0-9]*)?", text) and float(text) < period:
        return
    yield f"env.RANKLAUNCH_GRACE_S={text!r}: expected seconds below lifecycle.gracePeriodSeconds={period}, after which the pod is killed"


def _restart(spec: JobSpec) -> Iterator[str]:
    why = table.why_no_place(spec.engine, "restart.maxRestarts")
    if spec.restart.on_eviction == "restart" and (why or not spec.restart.max_restarts):
        yield f"restart.onEviction=restart: {why or 'expected restart.maxRestarts above 0'}"


# A text is the name of a list in rules.json.
COMMON = (table.no_place, "program", _image, "devices", _extra_devices, _environment, variables.problems, _size, "method", _restart)


# Other engines


def _modelarts(spec: JobSpec) -> Iterator[str]:
    if not flavor(spec):
        sizes = ", ".join(map(str, POOL_FLAVORS))
        yield f"modelarts.flavor: required (--flavor), unless modelarts.poolId is set (--pool-id) and devicesPerNode is one of {sizes}"
    if len(environment(spec)) > MOST_MODELARTS_VARIABLES:
        yield f"env: {len(environment(spec))} variables with ranklaunch's own, expected at most {MOST_MODELARTS_VARIABLES}"
    if spec.modelarts.hang_retry and spec.device.kind == "cpu":
        yield "modelarts.hangRetry: ModelArts detects hangs only in jobs with GPUs or NPUs; leave it out"
    yield from _names_of_variables(spec)
    for name, value in spec.env.items():
        if len(name) > MOST_MODELARTS_NAME or len(value) > MOST_MODELARTS_VALUE:
            yield f"env.{name[:60]}: expected at most {MOST_MODELARTS_NAME} characters of name and {MOST_MODELARTS_VALUE} of text"
    for place, channels in (("inputs", spec.modelarts.inputs), ("outputs", spec.modelarts.outputs)):
        if not all(map(_channel, channels)):
            yield f"modelarts.{place}: expected a name and an obsUrl in each, as strings, and if wanted a localDir"


def _channel(channel: Mapping[str, object]) -> bool:
    required, known = {"name", "obsUrl"}, {"name", "obsUrl", "localDir"}
    return required <= set(channel) <= known and all(isinstance(value, str) and value for value in channel.values())


def _names_of_variables(spec: JobSpec) -> Iterator[str]:
    for name in spec.env:
        if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name):
            yield f"env.{name}: expected letters, digits and underscores"


def _elsewhere(spec: JobSpec) -> Iterator[str]:
    yield from _names_of_variables(spec)
    yield from (slurm if spec.engine == "slurm" else hpc if spec.engine in BY_SCRIPT else clouds).problems(spec)


OF_ENGINE = {**refuse_kubernetes.OF_ENGINE, "modelarts": _modelarts}
