"""Write values.yaml, values.schema.json and keys.json of the charts, and the table in README.md of charts/ranklaunch.

The values of charts/ranklaunch come from the table of a job's specification (ranklaunch.specs.model), so that the chart and
`ranklaunch spec` have the same keys. Those of charts/ranklaunch-runtimes come from tools/runtime_values.py. Templates that both charts
use are copied from charts/ranklaunch.

    python tools/chart_values.py            write the files
    python tools/chart_values.py --check    write nothing; name stale files and exit with 1
"""

from __future__ import annotations

import dataclasses
import json
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ranklaunch.specs import familiar, keys, model, pod, rules, variables
from ranklaunch.specs.keys import Key
from ranklaunch.specs.kubernetes import check, companions
from testbench import places

OF_RUNTIMES = places.module("tools/runtime_values.py")
OF_VARIABLES = places.module("tools/spec_variables.py")
CHARTS = places.ROOT / "charts"
CHART, RUNTIMES = CHARTS / "ranklaunch", CHARTS / "ranklaunch-runtimes"
# Values of platforms for which there is no chart.
LEFT_OUT = ("modelarts", "slurm", *model.OF_CLOUDS, *model.BY_SCRIPT, "cloud", "batch")
OF_TEMPLATES = ("mode",)  # legal words checked by templates/_validate.tpl, which suggests a correction; Helm's schema would not
SHAPES_OF_TEMPLATES = ("env", "image")  # often written in Kubernetes' shape; templates/_keys.tpl names the right one
HEADER = """\
# Values of one training run. Made by tools/chart_values.py from the table that `ranklaunch spec` reads too; do not edit.
# Unknown names and null values are refused.
"""
HEADER_OF_RUNTIMES = """\
# Values of the runtimes. Made by tools/chart_values.py from tools/runtime_values.py; do not edit.
# Unknown names and null values are refused.
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
    """Return the legal words of a key in the chart: without engines of other platforms."""
    return [word or '""' for word in key.legal if word not in LEFT_OUT]


def _default(key: Key) -> object:
    return list(key.default) if isinstance(key.default, tuple) else key.default


# values.schema.json: types and ranges only. For other faults Helm would quote patterns of the schema; templates/_keys.tpl reports them in
# words, from keys.json.


def schema(kind: type, chart: str) -> Schema:
    made = {"$schema": "http://json-schema.org/draft-07/schema#", "title": f"values of the chart {chart}", **_group(kind)}
    made["properties"]["global"] = {"type": "object", "description": "reserved by Helm for charts that contain this one; not used"}
    return made


def _group(kind: type) -> Schema:
    properties = {
        name: _group(field.metadata["group"]) if "group" in field.metadata else _key(name, field.metadata["key"])
        for name, field in groups(kind)
    }
    for name in SHAPES_OF_TEMPLATES:
        properties.get(name, {}).pop("type", None)
    # Required: Helm removes a null value before it validates, and the default would be lost silently.
    return {"type": "object", "required": list(properties), "properties": properties}


def _key(name: str, key: Key) -> Schema:
    made = {"description": key.meaning, **_kind(key)}
    if name in OF_TEMPLATES:
        made["examples"] = made.pop("enum")
    return made


def _kind(key: Key) -> Schema:
    if key.kind == keys.TEXT:
        return {"type": "string", **({"enum": [word for word in key.legal if word not in LEFT_OUT]} if key.legal else {})}
    if key.kind == keys.WHOLE:
        return {"type": "integer", "minimum": key.low, "maximum": key.high}
    if key.kind == keys.FLAG:
        return {"type": "boolean"}
    if key.kind == keys.PAIRS:
        return {"type": "object", "additionalProperties": {"type": "string"}}
    if key.kind == keys.OBJECT:
        return {"type": "object"}
    bounds = {"minimum": key.low, "maximum": key.high} if key.kind == keys.WHOLES else {}
    return {"type": "array", "items": {**ITEMS[key.kind], **bounds}}


# keys.json


def known(kind: type) -> Schema:
    """Return the tables of keys.json: names of a chart's keys, forms of their values, and names that other tools use for them."""
    there = [path for path in keys.paths(kind) if not _foreign(path)]
    table = {path: key for path, key in keys.every(kind) if not _foreign(path)}
    meant = {word: advice for word, advice in familiar.FAMILIAR.items() if re.match("[A-Za-z.]*|left out", advice)[0] in (*there, "left")}
    return {
        "keys": list(table),
        "image": [path.rpartition(".")[2] for path in table if path.startswith("image.")],
        "groups": [path for path in there if path not in table],
        "forms": {path: _form(key) for path, key in table.items() if key.pattern},
        "objects": {path: key.of + "[]" * (key.kind == keys.OBJECTS) for path, key in table.items() if key.of},
        "familiar": {**familiar.index(there), **meant},
        "words": {path: _words(path, key) for path, key in table.items() if path in OF_TEMPLATES},
        "variables": {**json.loads(OF_VARIABLES.made()), "saidBy": variables.SAID_BY, "derived": pod.DERIVED, "setBy": pod.SET_BY},
        "alerts": [alert._asdict() for alert in companions.ALERTS],
        "pods": companions.PODS,
        "types": check.types(),
        "oneOf": {name: list(besides) for name, besides in check.ONE_OF.items()},
        "common": check.COMMON,
        "madeFrom": check.MADE_FROM,
        "scalars": {name: expected for name, (_, expected) in check.SCALARS.items()},
        "patterns": {"name": f"^(?:{keys.NAMES})$", "quantity": f"^(?:{check.QUANTITY})$"},
    }


def _words(path: str, key: Key) -> Schema:
    meant = {word: ours for ours, words in rules.rules()["meant"][path].items() for word in words.split()}
    return {"legal": list(key.legal), "meant": meant}


def _form(key: Key) -> Schema:
    return {
        "pattern": f"^(?:{key.pattern})$",
        "form": OF_RUNTIMES.FORMS.get(key.pattern) or key.form,
        "of": "names" if key.kind == keys.PAIRS else "items" if key.kind == keys.TEXTS else "text",
    }


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
    shared = {name: (CHART / "templates" / name).read_text(encoding="utf-8") for name in ("_given.tpl", "_keys.tpl")}
    return {
        OF_VARIABLES.PAGE: OF_VARIABLES.made(),
        readme: with_table(readme.read_text(encoding="utf-8")),
        **of_chart(CHART, model.JobSpec, HEADER),
        **of_chart(RUNTIMES, OF_RUNTIMES.Runtimes, HEADER_OF_RUNTIMES),
        **{RUNTIMES / "templates" / name: text.replace('"ranklaunch.', '"ranklaunch-runtimes.') for name, text in shared.items()},
    }


def of_chart(chart: Path, kind: type, header: str) -> dict[Path, str]:
    return {
        chart / "values.yaml": header + "\n" + "\n".join(values(kind)).rstrip("\n") + "\n",
        chart / "values.schema.json": json.dumps(schema(kind, chart.name), indent=2, ensure_ascii=False) + "\n",
        chart / "keys.json": json.dumps(known(kind), indent=1, ensure_ascii=False) + "\n",
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
