"""The plans of a job's nodes as a short text, for people who read golden files: all that is in them but what is empty, usual or default.

What differs by numbers in even steps, as the ranks of a node do, or the nodes of a job, is told once: {0..7} stands for eight numbers,
{0..24:8} for 0, 8, 16 and 24, and {{0..24:8}..{7..31:8}} for 0 to 7 on the first node, 8 to 15 on the next. Where nodes differ by
more, the first is told whole and of each other what is different. Long names of hosts are @0, @1, ..., which stand at the top.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ranklaunch.adapters.launchers import torchrun
from ranklaunch.adapters.launchers.shared import open_mpi

Plan = dict[str, Any]
Item = tuple[str, str]  # what it is, by which it is found in another node's plan; its lines

WIDTH = 140
LONG_NAME = 20  # characters of a host's name from which on its number takes its place
SHORT_FILE = 10  # lines of a file that are shown; of a longer one, its hash
USUAL = {
    "timeout_s": 600.0, "wait_s": 600.0, "grace_s": 25.0, "lost_after_s": 20.0, "end_timeout_s": 600.0, "hang": "observe", "hang_s": 300.0,
    "first_step_s": 1800.0, "all_said": torchrun.ALL_SAID, "reports": open_mpi.REPORTS,
}  # fmt: skip
COUNTED_FROM_0 = ("rank", "local_rank", "node")
TOLD_ABOVE = ("schema", "platform", "method", "why", "job", "values", "warnings")
LEFT_OUT = ("recorders",)  # the same in almost all; whole plans have them
PROCESSES = ("gather", "prepare", "services", "processes")
_NUMBER = re.compile(r"([0-9]+)")


def summary(own: Plan, nodes: Sequence[Plan]) -> str:
    """own: the plan of the node whose environment it is. nodes: those of all, in their order, as they are made from there."""
    job, names = own["job"], {node["host"]: f"@{node['index']}" for node in own["job"]["nodes"] if len(node["host"]) > LONG_NAME}
    private = folded([f"PRIVATE {plan['private']}" for plan in nodes if plan["private"]])
    lines = [
        f"{own['method']} on {own['platform']}: {own['why']}",
        f"{printable(job['name'])}, attempt {job['attempt']}, {job['world_size']} ranks, {job['accelerator']}",
        *(f"  {line}" for line in [*folded([_node(node) for node in job["nodes"]]), *private]),
        f"told to node {job['node_index']}",
        *(f"  {_value(value)}" for value in _short(own["values"], names) if value["source"] != "default"),
        *(f"  warning: {warning}" for warning in own["warnings"]),
        *_of_nodes([list(_items(plan, names)) for plan in nodes]),
        *_by_itself(list(_items(own, names)), list(_items(nodes[job["node_index"]], names))),
    ]
    return "".join(f"{part}\n" for line in lines for part in wrapped(line))


def _of_nodes(nodes: list[list[Item]]) -> Iterator[str]:
    whole = folded([_text(f"node {i}", items) for i, items in enumerate(nodes)])
    if len(whole) > 1:
        others = [_text(f"node {i}", _differing(nodes[0], items)) for i, items in enumerate(nodes) if i]
        whole = [_text("node 0", nodes[0]), *folded(others)]
    for text in whole:
        yield from text.split("\n")


def _by_itself(own: list[Item], told: list[Item]) -> list[str]:
    """What the node whose environment it is plans otherwise than others plan for it: it knows facts of its own."""
    return _text("the node itself", _differing(told, own)).split("\n") if own != told else []


def _text(heading: str, items: Sequence[Item]) -> str:
    return "\n".join([heading, *(f"  {line}" for _, text in items for line in text.split("\n"))])


def _differing(first: list[Item], items: list[Item]) -> list[Item]:
    there = {kind for kind, _ in items}
    return [*(item for item in items if item not in first), *((kind, f"no {kind}") for kind, _ in first if kind not in there)]


# Folding


def folded(texts: Sequence[str]) -> list[str]:
    """Neighbours that differ by numbers in even steps, as one."""
    found, start = [], 0
    while start < len(texts):
        end = start + 1
        while end < len(texts) and fold(texts[start : end + 1]) is not None:
            end += 1
        found.append(fold(texts[start:end]) or texts[start])
        start = end
    return found


def fold(texts: Sequence[str]) -> str | None:
    """None where they differ by more, or not at all."""
    if len(texts) == 1:
        return texts[0]
    rows = [_NUMBER.split(text) for text in texts]
    if len({len(row) for row in rows}) > 1 or texts[0] == texts[1]:
        return None
    parts = [column[0] if len(set(column)) == 1 else _steps(column) for column in zip(*rows)]
    return None if None in parts else "".join(part for part in parts if part)


def _steps(numbers: Sequence[str]) -> str | None:
    if not all(map(str.isdigit, numbers)):
        return None
    first, step, width = int(numbers[0]), int(numbers[1]) - int(numbers[0]), len(numbers[0]) if numbers[0].startswith("0") else 0
    if step < 1 or any(f"{first + i * step:0{width}}" != number for i, number in enumerate(numbers)):
        return None
    return f"{{{numbers[0]}..{numbers[-1]}{f':{step}' if step > 1 else ''}}}"


# One node


def _items(plan: Plan, names: Mapping[str, str]) -> Iterator[Item]:
    for key, value in _short({**plan, "private": ""}, {**names, plan["private"]: "PRIVATE"}).items():
        if key in PROCESSES:
            yield from ((f"{key}: {_kind(text)}", f"{key}: {text}") for text in folded([_process(process) for process in value]))
        elif key == "files":
            yield from ((f"file {file['path']}", _file(file)) for file in value)
        elif key == "rank_logs":
            yield from (("rank log", f"rank log {text}") for text in folded([_flat(log) for log in value]))
        elif key == "waits":
            yield from ((f"wait for {wait['for']}", f"wait for {_flat({**wait, 'for': ''}, wait['for'])}") for wait in value)
        elif key == "muster" and value:
            yield "muster", f"muster {_flat({**value, 'facts': ''})}"
            yield "facts", f"the same on all nodes: {_all(value['facts'])}"
        elif key not in (*TOLD_ABOVE, *LEFT_OUT) and value and _flat(value):
            yield key, f"{key} {_flat(value)}"


def _kind(process: str) -> str:
    return re.split(r"[ ,][0-9{]|,", process)[0]


def _process(process: Plan) -> str:
    rest = dict(process)
    name, argv, env, unset = (rest.pop(key) for key in ("name", "argv", "env", "unset"))
    lines = [
        _flat(rest, f"{name},"),
        _all(env),
        f"without {' '.join(unset)}" if unset else "",
        f"$ {printable(shlex.join(argv))}",
    ]
    return "\n    ".join(filter(None, lines))


def _file(file: Plan) -> str:
    rest = dict(file)
    text = _compact(rest.pop("text"))
    lines = text.splitlines()
    if len(lines) > SHORT_FILE:
        return f"file {_flat(rest)}  {len(lines)} lines, sha256:{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    return "\n    | ".join([f"file {_flat(rest)}", *map(printable, lines)])


def _compact(text: str) -> str:
    """JSON without its spaces, but where people put some; anything else as it is."""
    try:
        return json.dumps(json.loads(text))
    except ValueError:
        return text


def _node(node: Plan) -> str:
    rest = {key: value for key, value in node.items() if key not in ("index", "host", "slots", "first_rank")}
    return _flat(rest, f"@{node['index']} {node['host'] or '(no name)'}, {node['slots']} slots from rank {node['first_rank']}")


def _value(value: Plan) -> str:
    over = ", ".join(f"{other['source']}={other['value']}" for other in value["overrides"])
    return printable(f"{value['name']} = {value['value'] or '(none)'}  [{value['source']}]{over and f' over {over}'}")


# Words


def _flat(value: Any, *before: str) -> str:
    """Names with their values, but for what is usual, empty or 0."""
    if not isinstance(value, dict):
        return printable(value) if isinstance(value, str) else json.dumps(value)
    told = _all({key: inner for key, inner in value.items() if _is_told(key, inner)})
    return " ".join(filter(None, (*before, told)))


def _all(value: Mapping[str, Any]) -> str:
    return " ".join(f"{key}={_word(inner)}" for key, inner in value.items())


def _is_told(key: str, value: Any) -> bool:
    if value in (0, False):
        return key in COUNTED_FROM_0
    return bool(value) and (key not in USUAL or USUAL[key] != value)


def _word(value: Any) -> str:
    if isinstance(value, dict):
        return f"({_flat(value)})"
    return printable(shlex.quote(value)) if isinstance(value, str) else json.dumps(value)


def _short(value: Any, names: Mapping[str, str]) -> Any:
    """Plans with numbers for names; longer names first, since one may be in another."""
    text = json.dumps(value)
    for name in sorted(filter(None, names), key=len, reverse=True):
        text = text.replace(json.dumps(name)[1:-1], names[name])
    return json.loads(text)


def wrapped(line: str) -> list[str]:
    """Broken at spaces, of which each break takes one."""
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    lines = [""]
    for i, word in enumerate(line.split(" ")):
        if lines[-1].strip() and len(lines[-1]) + len(word) >= WIDTH:
            lines.append(indent + word)
        else:
            lines[-1] += f" {word}" if i else word
    return lines


def printable(line: str) -> str:
    """Control characters, and bytes that are no text, as their escapes."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)
