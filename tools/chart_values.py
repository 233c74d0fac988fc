"""Writes values.yaml, values.schema.json and the table in README.md of charts/ranklaunch.

They come from the table of a job's specification, so that the chart and `ranklaunch spec` have the same keys:
`python tools/chart_values.py`, or with --check to be told of what is stale.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ranklaunch.read.settings import BY_MPI
from ranklaunch.specs import keys, model
from ranklaunch.specs.keys import Key

CHART = Path(__file__).resolve().parent.parent / "charts" / "ranklaunch"
# Of platforms that no chart is for.
LEFT_OUT = ("modelarts", "slurm")
HEADER = """\
# Values of one training run. Made by tools/chart_values.py from the table that `ranklaunch spec` reads too; do not edit.
# A name that is not here is refused, and so is null.
"""
ITEMS = {keys.TEXTS: {"type": "string"}, keys.WHOLES: {"type": "integer"}, keys.OBJECTS: {"type": "object"}}

Schema = dict[str, Any]


def groups(kind: type) -> Iterator[tuple[str, dataclasses.Field[Any]]]:
    for name, field in keys.fields(kind).items():
        if name not in LEFT_OUT:
            yield name, field


# values.yaml


def values(kind: type, indent: str = "") -> Iterator[str]:
    for name, field in groups(kind):
        group = field.metadata.get("group")
        if group:
            yield f"{indent}{name}:"
            yield from values(group, indent + "  ")
        else:
            yield from _value(name, field.metadata["key"], indent)
        if not indent:
            yield ""


def _value(name: str, key: Key, indent: str) -> Iterator[str]:
    yield from textwrap.wrap(f"{indent}# -- {_meaning(key)}", 130, subsequent_indent=f"{indent}#    ", break_on_hyphens=False)
    yield f"{indent}{name}: {json.dumps(_default(key))}"


def _meaning(key: Key) -> str:
    return f"{key.meaning}. One of: {', '.join(_legal(key))}" if key.legal else key.meaning


def _legal(key: Key) -> list[str]:
    """As the chart has it: without the engines that are other platforms."""
    return [word or '""' for word in key.legal if word not in LEFT_OUT]


def _default(key: Key) -> object:
    return list(key.default) if isinstance(key.default, tuple) else key.default


# values.schema.json


def schema() -> Schema:
    made = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "values of the chart ranklaunch", **_group(model.JobSpec)}
    made["properties"]["global"] = {"type": "object", "description": "Helm's own, for charts that contain this one; not used"}
    return {**made, "allOf": RULES}


def _group(kind: type) -> Schema:
    properties = {
        name: _group(field.metadata["group"]) if "group" in field.metadata else _key(field.metadata["key"]) for name, field in groups(kind)
    }
    # Required, for Helm takes a value that is null out before it looks here: the default would be lost without a word.
    return {"type": "object", "additionalProperties": False, "required": list(properties), "properties": properties}


def _key(key: Key) -> Schema:
    return {"description": key.meaning, **_kind(key)}


def _kind(key: Key) -> Schema:
    text = {"type": "string", **_shape(key)}
    if key.kind == keys.TEXT:
        return text
    if key.kind == keys.WHOLE:
        return {"type": "integer", "minimum": key.low, "maximum": key.high}
    if key.kind == keys.FLAG:
        return {"type": "boolean"}
    if key.kind == keys.PAIRS:
        return {"type": "object", **_pairs(key)}
    if key.kind == keys.OBJECT:
        return {"type": "object"}
    bounds = {"minimum": key.low, "maximum": key.high} if key.kind == keys.WHOLES else {}
    shape = _shape(key) if key.kind == keys.TEXTS else {}
    return {"type": "array", "items": {**ITEMS[key.kind], **bounds, **shape}}


def _shape(key: Key) -> Schema:
    if key.legal:
        return {"enum": [word for word in key.legal if word not in LEFT_OUT]}
    return {"pattern": f"^(?:{key.pattern})?$"} if key.pattern else {}


def _pairs(key: Key) -> Schema:
    """Not by propertyNames: Helm 4 does not say then which value it is."""
    text = {"type": "string"}
    if not key.pattern:
        return {"additionalProperties": text}
    return {"additionalProperties": False, "patternProperties": {f"^(?:{key.pattern})$": text}}


# What depends on another value. What a schema cannot say is in templates/_validate.tpl.


def _when(*conditions: Schema, then: Schema) -> Schema:
    return {"if": {"allOf": list(conditions)}, "then": then}


def _is(path: str, *values: object) -> Schema:
    name, _, rest = path.partition(".")
    inner = _is(rest, *values) if rest else {"enum": list(values)}
    return {"required": [name], "properties": {name: inner}}


def _not(path: str, *values: object) -> Schema:
    name, _, rest = path.partition(".")
    inner = _not(rest, *values) if rest else {"not": {"enum": list(values)}}
    return {"properties": {name: inner}}


RULES: list[Schema] = [
    {"properties": {"image": {"properties": {"repository": {"minLength": 1}}}}},
    _when(_is("engine", "job", "mpijob"), then=_is("restart.maxRestarts", 0)),
    _when(_is("engine", "job", "mpijob"), then=_is("restart.onEviction", "", "fail")),
    _when(_is("engine", "acjob"), then=_is("device.kind", "npu")),
    _when(_is("engine", "mpijob"), then=_is("mode", "auto", *BY_MPI)),
    _when(_is("engine", "acjob"), then=_not("mode", *BY_MPI, "tensorflow")),
    _when(_is("device.kind", "gpu"), then=_not("mode", "ranktable", "msrun")),
    _when(_is("device.kind", "gpu", "npu"), then={"properties": {"devicesPerNode": {"minimum": 1}}}),
]


# README.md


def with_table(page: str) -> str:
    start, end = "<!-- values (tools/chart_values.py writes them) -->\n", "<!-- end of values -->\n"
    head, _, rest = page.partition(start)
    return f"{head}{start}{table()}{end}{rest.partition(end)[2]}"


def table() -> str:
    rows = [f"| `{path}` | {_shown(_default(key))} | {_meaning(key)} |\n" for path, key in keys.every(model.JobSpec) if not _foreign(path)]
    return "| value | default | meaning |\n| --- | --- | --- |\n" + "".join(rows)


def _foreign(path: str) -> bool:
    return path.partition(".")[0] in LEFT_OUT


def _shown(default: object) -> str:
    return "" if default == "" else f"`{json.dumps(default)}`"


def made() -> dict[Path, str]:
    readme = CHART / "README.md"
    return {
        readme: with_table(readme.read_text(encoding="utf-8")),
        CHART / "values.yaml": HEADER + "\n" + "\n".join(values(model.JobSpec)).rstrip("\n") + "\n",
        CHART / "values.schema.json": json.dumps(schema(), indent=2, ensure_ascii=False) + "\n",
    }


def main(words: list[str]) -> int:
    stale = [path for path, text in made().items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    if words == ["--check"]:
        for path in stale:
            print(f"{path.relative_to(CHART.parent.parent)} is stale: run tools/chart_values.py", file=sys.stderr)
        return 1 if stale else 0
    if words:
        print("usage: python tools/chart_values.py [--check]", file=sys.stderr)
        return 2
    for path in stale:
        path.write_text(made()[path], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
