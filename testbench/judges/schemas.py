"""Validation of objects by the schemas of Kubernetes and of the engines.

Schemas of Kubernetes' kinds come with kubernetes-validate. Schemas of custom resources are CustomResourceDefinitions, which no package
has: they are read from the folder in SPEC_CRDS, else from a folder crds beside the repository, or in a folder there (tools/crds.py).
"""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from testbench.judges.charts import Object, parse
from testbench.places import ROOT

OLDEST, NEWEST = "1.29", "1.35"  # versions of Kubernetes: the oldest that the charts allow, and a new one
CORE = {("v1", "Service"), ("v1", "ConfigMap"), ("v1", "Pod"), ("batch/v1", "Job"), ("networking.k8s.io/v1", "NetworkPolicy")}
# Fields of the Prometheus Operator that the charts use, from its API reference (prometheus-operator.dev/docs/api-reference/api).
_TEXTS: Object = {"type": "object", "additionalProperties": {"type": "string"}}
_ENDPOINT: Object = {"type": "object", "properties": {"port": {"type": "string"}, "path": {"type": "string"}}, "required": ["port"]}
_RULE: Object = {
    "type": "object",
    "properties": {
        "alert": {"type": "string"},
        "expr": {"type": "string"},
        "for": {"type": "string", "pattern": "^[0-9]+[smhd]$"},
        "labels": _TEXTS,
        "annotations": _TEXTS,
    },
    "required": ["alert", "expr"],
}
_GROUP: Object = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "rules": {"type": "array", "items": _RULE}},
    "required": ["name", "rules"],
}
MONITORING: dict[str, Object] = {
    "PodMonitor": {
        "selector": {"type": "object", "properties": {"matchLabels": _TEXTS}},
        "podMetricsEndpoints": {"type": "array", "items": _ENDPOINT, "minItems": 1},
    },
    "PrometheusRule": {"groups": {"type": "array", "items": _GROUP, "minItems": 1}},
}


def is_core(thing: Object) -> bool:
    return (thing["apiVersion"], thing["kind"]) in CORE


def misfits_of_core(thing: Object) -> list[str]:
    """Return the errors of an object of Kubernetes, or of the pod templates of a custom resource."""
    things = [thing] if is_core(thing) else [as_pod(template) for template in pod_templates(thing)]
    return [text for each in things for text in _core(each)]


def misfits_of_custom(thing: Object) -> list[str]:
    """Return the errors of a custom resource, in all known versions of the engine."""
    schemas = schemas_of(thing["apiVersion"], thing["kind"])
    assert schemas, f"{folder()} has no definition of {thing['kind']}: run tools/crds.py"
    return [text for schema in schemas for text in misfits(thing, schema)]


def _core(thing: Object) -> Iterator[str]:
    import kubernetes_validate  # from the extra `charts`

    for version in (OLDEST, NEWEST):
        try:
            kubernetes_validate.validate(thing, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            yield f"{thing['kind']} {'.'.join(map(str, error.path))}: {error.message} (Kubernetes {version})"


def misfits(thing: Object, schema: Object) -> Iterator[str]:
    import jsonschema  # from the extra `charts`

    for error in jsonschema.Draft7Validator(schema).iter_errors(thing):
        yield f"{thing['kind']} {'.'.join(map(str, error.absolute_path))}: {error.message[:300]}"


def pod_templates(thing: Any) -> Iterator[Object]:
    """Yield the pod templates in an object, at any depth: a dict whose spec has containers."""
    if isinstance(thing, dict):
        if isinstance(thing.get("spec"), dict) and "containers" in thing["spec"] and "kind" not in thing:
            yield thing
        else:
            for each in thing.values():
                yield from pod_templates(each)
    elif isinstance(thing, list):
        for each in thing:
            yield from pod_templates(each)


def as_pod(template: Object) -> Object:
    """Return a template as a Pod, which Kubernetes' schema checks; the engines' schemas do not look into pods."""
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod", **template.get("metadata", {})}, "spec": template["spec"]}


@functools.cache
def schemas_of(api_version: str, kind: str) -> list[Object]:
    """Return the schemas of a kind, one for each version of the engine with a definition in the folder."""
    if api_version == "monitoring.coreos.com/v1" and kind in MONITORING:
        return [_of_monitoring(MONITORING[kind])]
    known = folder()
    texts = [path.read_text(encoding="utf-8") for path in sorted(known.glob("*.yaml"))] if known else []
    specs = [crd["spec"] for text in texts if f"kind: {kind}\n" in text for crd in parse(text)]
    return [
        strict(version["schema"]["openAPIV3Schema"])
        for spec in specs
        for version in spec["versions"]
        if (f"{spec['group']}/{version['name']}", spec["names"]["kind"]) == (api_version, kind)
    ]


def _of_monitoring(fields: Object) -> Object:
    whole = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}}
    spec = {"type": "object", "properties": fields, "required": list(fields)}
    made: Object = strict({"type": "object", "properties": {**whole, "spec": spec}, "required": ["metadata", "spec"]})
    return made


@functools.cache
def folder() -> Path | None:
    named = [Path(os.environ["SPEC_CRDS"])] if os.environ.get("SPEC_CRDS") else []
    return next((path for path in [*named, ROOT.parent / "crds", *sorted(ROOT.parent.glob("*/crds"))] if path.is_dir()), None)


def strict(schema: Any) -> Any:
    """Return a schema of Kubernetes as JSON Schema that refuses unknown fields, like an API server with strict validation."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {
        key: {name: strict(each) for name, each in value.items()} if key == "properties" else strict(value) for key, value in schema.items()
    }
    if schema.get("x-kubernetes-int-or-string"):
        made["type"] = ["integer", "string"]
    if _closed(schema):
        made["additionalProperties"] = False
    return made


def _closed(schema: Object) -> bool:
    """True if unknown fields are errors. Schemas inside anyOf and the like have no type, and stay open."""
    opened = schema.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in schema
    return schema.get("type") == "object" and "properties" in schema and not opened


def broken_rules(thing: Object) -> list[str]:
    """Return the CEL rules that a new custom resource breaks. Rules about changes (oldSelf) are left out."""
    return [rule for schema in schemas_of(thing["apiVersion"], thing["kind"]) for rule in _broken(schema, thing)]


def _broken(schema: Object, value: Any) -> Iterator[str]:
    for rule in schema.get("x-kubernetes-validations", []):
        if "oldSelf" not in rule["rule"] and not _holds(rule["rule"], value):
            yield rule["rule"]
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _broken(schema.get("properties", {}).get(name, {}), each)
    if isinstance(value, list):
        for each in value:
            yield from _broken(schema.get("items", {}), each)


def _holds(rule: str, value: Any) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import celpy  # from the extra `charts`

        environment = celpy.Environment()
        program = environment.program(environment.compile(rule))
        return bool(program.evaluate({"self": celpy.json_to_cel(value)}))
