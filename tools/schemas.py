"""Write docs/schemas/, the JSON Schemas of ranklaunch's files, from the types in ranklaunch.schemas and the table of events.

.venv/bin/python tools/schemas.py            write them
.venv/bin/python tools/schemas.py --check    write nothing; name stale files and exit with 1

Needs Python 3.10 or newer (types.UnionType).
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import sys
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Union

from ranklaunch import fields
from ranklaunch.adapters.platforms.shared import user_rows
from ranklaunch.adapters.platforms.shared.base import Refusal, Row
from ranklaunch.report.model import Report
from ranklaunch.schemas import answers, ends, plan, record, verdict
from ranklaunch.verdict import events

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "schemas"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
# Type of each document, by the name of its schema. The last two are not in ranklaunch.schemas.
DOCUMENTS: Mapping[str, Any] = {
    **plan.DOCUMENTS,
    **verdict.DOCUMENTS,
    **ends.DOCUMENTS,
    **record.DOCUMENTS,
    **answers.DOCUMENTS,
    "report": Report,
    "platforms": user_rows.PlatformFile,
}
READ = (Row, Refusal)  # written by users: fields with a default may be missing
PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
Schema = dict[str, Any]


VERSIONS = {"plan": 2}  # of schemas whose version is not 1
EARLIER = ("plan-1.schema.json",)  # schemas of files from older versions: kept, not generated


def main(argv: Sequence[str], folder: Path = FOLDER) -> int:
    if list(argv) not in ([], ["--check"]):
        sys.stderr.write(__doc__ or "")
        return 2
    made = files()
    there = {path.name for path in folder.glob("*")} - set(EARLIER)
    stale = [name for name in sorted(made.keys() | there) if name not in made or name not in there or _read(folder / name) != made[name]]
    for name in stale:
        if argv:
            sys.stderr.write(f"docs/schemas/{name} is stale: run tools/schemas.py\n")
        elif name in made:
            (folder / name).write_text(made[name], encoding="utf-8")
        else:
            (folder / name).unlink()
    return 1 if stale and argv else 0


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def files() -> dict[str, str]:
    made = {name: document(name, kind) for name, kind in DOCUMENTS.items()} | {"events": of_events()}
    return {f"{name}.schema.json": json.dumps(schema, indent=1) + "\n" for name, schema in made.items()}


def document(name: str, kind: Any) -> Schema:
    """Return the schema of a whole file, with the schemas of its parts in $defs."""
    parts = Parts()
    whole = {"oneOf": [parts.of(each) for each in typing.get_args(kind)]} if typing.get_origin(kind) is Union else parts.object(kind)
    return {**_head(name), **whole, **({"$defs": parts.found} if parts.found else {})}


def _head(name: str) -> Schema:
    return {"$schema": DIALECT, "$id": f"urn:ranklaunch:{name}:{VERSIONS.get(name, 1)}", "title": f"ranklaunch {name}"}


class Parts:
    """Schemas of types. found: the schemas of all types referred to so far, by name."""

    def __init__(self) -> None:
        self.found: dict[str, Schema] = {}
        self._kinds: dict[str, Any] = {}

    def of(self, kind: Any) -> Schema:
        """Return the schema of any type."""
        origin, args = typing.get_origin(kind), typing.get_args(kind)
        if kind is Any:
            return {}
        if kind in PLAIN:
            return {"type": PLAIN[kind]}
        if origin is Literal:
            return {"const": args[0]} if len(args) == 1 else {"enum": list(args)}
        if origin in (Union, types.UnionType):
            return self._any_of(args)
        if origin in (list, tuple):
            return self._array(origin, args)
        if origin is not None and issubclass(origin, Mapping):
            return {"type": "object", "additionalProperties": self.of(args[1])}
        return self._reference(kind)

    def object(self, kind: Any) -> Schema:
        """Return the schema of a closed object: a dataclass or a TypedDict."""
        hints = typing.get_type_hints(kind)
        if dataclasses.is_dataclass(kind):
            names, required = fields.names(kind), _written(kind)
        else:
            names, required = tuple(hints), kind.__required_keys__
        whole, of_fields = described(kind, names)
        properties = {name.rstrip("_"): {**self.of(hints[name]), **_description(of_fields.get(name, ""))} for name in names}
        return {
            "type": "object",
            **_description(whole),
            "properties": properties,
            "required": [name.rstrip("_") for name in names if name in required],
            "additionalProperties": False,
        }

    def _any_of(self, args: Sequence[Any]) -> Schema:
        each = [self.of(arg) for arg in args]
        if all(schema.keys() == {"type"} for schema in each):
            return {"type": [schema["type"] for schema in each]}
        return {"anyOf": each}

    def _array(self, origin: type, args: Sequence[Any]) -> Schema:
        if origin is tuple and args[-1] is not Ellipsis:
            each = [self.of(arg) for arg in args]
            return {"type": "array", "prefixItems": each, "items": False, "minItems": len(each)}
        return {"type": "array", "items": self.of(args[0])}

    def _reference(self, kind: Any) -> Schema:
        name = kind.__name__
        assert self._kinds.setdefault(name, kind) is kind, f"two types are called {name}"
        if name not in self.found:
            self.found[name] = {}  # ends the recursion of a type that contains itself
            self.found[name] = self.object(kind)
        return {"$ref": f"#/$defs/{name}"}


def _written(kind: type) -> Sequence[str]:
    """Return the fields of a dataclass that are always written."""
    names, usual = fields.names(kind), fields.defaults(kind) if kind in (*ends.WITHOUT_DEFAULTS, *READ) else {}
    return [name for name in names if name not in usual]


def _description(text: str) -> Schema:
    return {"description": text} if text else {}


# Descriptions


def described(kind: Any, names: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Return the description of a type and of each field, from its docstring and from comments at the fields."""
    text = " ".join((kind.__doc__ or "").split()) if not _has_own_constructor_doc(kind) else ""
    one = "|".join(sorted(map(re.escape, names), key=len, reverse=True))
    found = list(re.finditer(rf"(?:^|(?<=[.;] ))(?P<names>(?:{one})(?:(?:, | and )(?:{one}))*): ", text))
    ends = [each.start() for each in found[1:]] + [len(text)]
    of_fields = _comments(kind, names)
    for each, end in zip(found, ends):
        for name in re.split(", | and ", each["names"]):
            of_fields[name] = _json_words(text[each.end() : end])
    return _json_words(text[: found[0].start()] if found else text), of_fields


def _has_own_constructor_doc(kind: Any) -> bool:
    """True if the docstring is the signature that Python generates for a class without one."""
    return "(" in (kind.__doc__ or "").partition(" ")[0]


def _json_words(text: str) -> str:
    text = re.sub(r"\bNone\b", "null", text.strip().rstrip(".;"))
    text = re.sub(r"\b[a-z]+_(?=[\s,:;.]|$)", lambda found: found[0].rstrip("_"), text)
    return text[:1].upper() + text[1:]


def _comments(kind: Any, names: Sequence[str]) -> dict[str, str]:
    """Return comments beside a field or above it, by field."""
    found, above = {}, []
    for line in inspect.getsource(kind).splitlines():
        field = re.fullmatch(r"    (\w+): [^#]*(?:# (.*))?", line)
        if field and field[1] in names and (above or field[2]):
            found[field[1]] = _json_words(" ".join([*above, *filter(None, [field[2]])]))
        above = [*above, line.strip()[2:]] if line.strip().startswith("# ") else []
    return found


# events.jsonl


def of_events() -> Schema:
    return {
        **_head("events"),
        "description": "One line of events.jsonl",
        "oneOf": [{"$ref": f"#/$defs/{event.name.replace(' ', '_')}"} for event in events.EVENTS],
        "$defs": {event.name.replace(" ", "_"): _event(event) for event in events.EVENTS},
    }


def _event(event: events.Event) -> Schema:
    fields = {field.name: _field(field) for field in (*events.COMMON, *event.fields)}
    return {
        "type": "object",
        **_description(_json_words(event.when)),
        "properties": {**fields, "event": {"const": event.name, **_description(fields["event"]["description"])}},
        "required": list(fields),
        "additionalProperties": False,
    }


def _field(field: events.Field) -> Schema:
    kind = "array" if field.type is list else PLAIN[field.type]
    return {"type": [kind, "null"] if field.may_be_null else kind, **_description(_json_words(field.meaning))}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
