"""Short text of the plans of a job's nodes, for people who read golden files. Empty, usual and default values are left out.

Usual is a value that follows from the rest of the plan, as the log `rank_3.log` and the tag `[rank 3]` of rank 3. Where a plan differs from
what is usual, the text shows the value, or "no NAME" for a part that is missing. Of settings that have their default, the text has the
names. One case has the whole plan besides.

Numbers in even steps are folded: {0..7} stands for eight numbers, {0..24:8} for 0, 8, 16 and 24, and {{0..24:8}..{7..31:8}} for 0 to 7
on the first node, 8 to 15 on the next. Where nodes differ by more, node 0 is shown whole, and of each other node the differences.
Names: @0, @1, ... are long names of hosts, LOGS is the folder of the attempt, PRIVATE that of keys, RECORDS that of recorders.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import ranklaunch

Plan = dict[str, Any]
Item = tuple[str, str]  # its kind, by which another node's plan is compared; its lines

WIDTH = 140
LONG_NAME = 20  # characters of a host's name from which on its number takes its place
LONG_WORD = 300  # characters of a word from which on it is cut
LONG_FACT = 200  # characters of a fact from which on ranklaunch cuts it
SHORT_FILE = 10  # lines of a file that are shown; of a longer one, its hash
USUAL = {
    "timeout_s": 600.0, "wait_s": 600.0, "grace_s": 25.0, "lost_after_s": 20.0, "end_timeout_s": 600.0, "hang": "observe", "hang_s": 300.0,
    "first_step_s": 1800.0, "mode": "0600",
}  # fmt: skip
COUNTED_FROM_0 = ("rank", "local_rank", "node")
SHOWN_ABOVE = ("schema", "platform", "method", "why", "job", "values", "warnings")
PROCESSES = ("gather", "prepare", "services", "processes")
_NUMBER = re.compile(r"([0-9]+)")


def summary(own: Plan, nodes: Sequence[Plan], like: Plan | None = None) -> str:
    """own: the plan of the node whose environment it is. nodes: those of all, in their order, as they are made from there. like: the
    plan of the case from which the environment differs; values that are the same there are left out."""
    job, names = own["job"], {node["host"]: f"@{node['index']}" for node in own["job"]["nodes"] if len(node["host"]) > LONG_NAME}
    private = folded([f"PRIVATE {re.sub('[0-9a-f]{8}$', '...', plan['private'])}" for plan in nodes if plan["private"]])
    known = like["values"] if like else []
    lines = [
        f"{own['method']} on {own['platform']}: {own['why']}",
        f"{printable(job['name'])}, attempt {job['attempt']}, {job['world_size']} ranks, {job['accelerator']}",
        *(f"  {line}" for line in [*folded([_node(node) for node in job["nodes"]]), *private]),
        *(f"  {line}" for line in _values(own, known, names)),
        *(f"  warning: {warning}" for warning in own["warnings"]),
        *_of_nodes([_items(plan, names) for plan in nodes]),
        *_by_itself(_items(own, names), _items(nodes[job["node_index"]], names)),
    ]
    return "".join(f"{part}\n" for line in lines for part in wrapped(line))


def long_files(plan: Plan) -> str:
    """The text of the files of which the summary has a hash."""
    texts = [(file["path"], file["text"].splitlines()) for file in plan["files"] if _is_long(_compact(file["text"]))]
    lines = [line for path, text in texts for line in (f"file {path}", *(f"    | {each}" for each in text))]
    return "".join(f"{printable(line)}\n" for line in lines)


def _is_long(text: str) -> bool:
    return len(text.splitlines()) > SHORT_FILE


def _of_nodes(nodes: list[list[Item]]) -> Iterator[str]:
    whole = folded([_text(f"node {i}", items, items) for i, items in enumerate(nodes)])
    if len(whole) > 1:
        others = [_text(f"node {i}", items, _differing(nodes[0], items)) for i, items in enumerate(nodes) if i]
        whole = [_text("node 0", nodes[0], nodes[0]), *folded(others)]
    for text in whole:
        yield from text.split("\n")


def _by_itself(own: list[Item], planned: list[Item]) -> list[str]:
    """Differences between the own node's plan and the plan that others make of it: the node knows facts of its own."""
    return _text("the node itself", own, _differing(planned, own)).split("\n") if own != planned else []


def _text(name: str, items: Sequence[Item], shown: Sequence[Item]) -> str:
    heading = ", ".join([name, *(text for kind, text in items if kind == "LOGS")])
    return "\n".join([heading, *(f"  {line}" for kind, text in shown if kind != "LOGS" for line in text.split("\n"))])


def _differing(first: list[Item], items: list[Item]) -> list[Item]:
    kinds = {kind for kind, _ in items}
    lacking = ", ".join(kind for kind, _ in first if kind not in {*kinds, "LOGS"})
    return [*(item for item in items if item not in first), *([("lacking", f"without {lacking}")] if lacking else [])]


# Folding


def folded(texts: Sequence[str]) -> list[str]:
    """Neighbours that differ by numbers in even steps, as one."""
    parts, start = [], 0
    while start < len(texts):
        end = start + 1
        while end < len(texts) and fold(texts[start : end + 1]) is not None:
            end += 1
        parts.append(fold(texts[start:end]) or texts[start])
        start = end
    return parts


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


# The values that were read


def _values(plan: Plan, known: Sequence[Any], names: Mapping[str, str]) -> Iterator[str]:
    usual = {
        "platform": (plan["platform"], "environment"),
        "python": ("python", "PATH"),
        "node_index": ("0", "one node"),
        "master_addr": (plan["job"]["nodes"][0]["host"], "hosts"),
    }
    for value in plan["values"]:
        in_first_line = value["name"] == "method" and value["source"] in plan["why"]
        is_usual = in_first_line or (value["value"], value["source"]) == usual.get(value["name"])
        if not is_usual and not _is_default(value) and value not in known:
            yield _value(_short(value, names))
    read = {value["name"] for value in plan["values"]}
    default, known_default = ([value["name"] for value in values if _is_default(value)] for values in (plan["values"], known))
    new = [name for name in default if name not in known_default]
    if new:
        yield f"by default: {' '.join(new)}"
    lacking = [name for name in dict.fromkeys(["platform", "python", *(value["name"] for value in known)]) if name not in read]
    if lacking:
        yield f"not read: {' '.join(lacking)}"


def _is_default(value: Plan) -> bool:
    return bool(re.match("default( |$)", value["source"]))


def _value(value: Plan) -> str:
    over = ", ".join(f"{other['source']}={other['value']}" for other in value["overrides"])
    return printable(f"{value['name']} = {value['value'] or '(none)'}  [{value['source']}]{over and f' over {over}'}")


# One node


def _items(plan: Plan, hosts: Mapping[str, str]) -> list[Item]:
    return list(_each_item(plan, {**hosts, plan["private"]: "PRIVATE", _logs(plan): "LOGS", plan["recorders"]["folder"]: "RECORDS"}))


def _each_item(plan: Plan, names: Mapping[str, str]) -> Iterator[Item]:
    if _logs(plan):
        yield "LOGS", f"LOGS {_logs(plan)}"
    records = plan["recorders"]["folder"]
    if records and not records.startswith("/tmp/ranklaunch-recorders-"):
        yield "RECORDS", f"RECORDS {records}"
    for key, value in plan.items():
        if key in PROCESSES:
            texts = folded([_process(process, plan, names) for process in value])
            yield from ((f"{key}: {_kind(text)}", f"{key}: {text}") for text in texts)
        elif key == "files":
            yield from (_file(_short(file, names)) for file in value)
        elif key == "rank_logs":
            texts = folded([_flat(_short(_unusual(log, _usual_log(log, plan)), names)) for log in value])
            yield from (("rank log", f"rank log {text}") for text in texts)
        elif key == "recorders":
            yield from _recorders(_short(value, names), plan)
        elif key == "waits":
            yield from _waits(value, plan, names)
        elif key == "muster" and value:
            yield from _muster(value, plan, names)
        elif key not in (*SHOWN_ABOVE, "private") and value and _flat(value):
            yield key, f"{key} {_flat(_short(value, names))}"


def _logs(plan: Plan) -> str:
    """The folder of the attempt."""
    return posixpath.dirname(next((process["log"] for key in reversed(PROCESSES) for process in plan[key]), ""))


def _waits(waits: Sequence[Any], plan: Plan, names: Mapping[str, str]) -> Iterator[Item]:
    muster = plan["muster"]
    meeting = muster and f"{len(plan['job']['nodes'])} nodes at {muster['host']}:{muster['port']}"
    for wait in waits:
        kind = wait["for"]
        text = _flat(_short(_unusual({**wait, "for": ""}, {"what": meeting} if kind == "muster" else {}), names))
        if text or kind != "muster":
            yield f"wait for {kind}", f"wait for {kind} {text}"
    if muster and "muster" not in (wait["for"] for wait in waits):
        yield "wait for muster", "no wait for muster"


def _muster(muster: Plan, plan: Plan, names: Mapping[str, str]) -> Iterator[Item]:
    rest = _unusual(muster, {"node": plan["job"]["node_index"]})
    host, port, facts = (rest.pop(key) for key in ("host", "port", "facts"))
    yield "muster", _flat(_short(rest, names), f"muster at {_short(host, names)}:{port}")
    usual, by_default = _usual_facts(plan), {value["name"]: value["value"] for value in plan["values"] if value["source"] == "default"}
    default = [name for name, value in facts.items() if name not in usual and by_default.get(name) == value]
    different = {name: value for name, value in _unusual(facts, usual).items() if name not in default}
    parts = [_all(_short(different, names)), _lacking(facts, usual), default and f"(by default {' '.join(default)})"]
    yield "facts", " ".join(["the same on all nodes:", *filter(None, parts)])


def _usual_facts(plan: Plan) -> dict[str, str]:
    job = plan["job"]
    nodes = job["nodes"]
    slots = [str(node["slots"]) for node in nodes]
    hosts = ",".join(f"{node['host']} {node['port']}" if node.get("port") else node["host"] for node in nodes)
    return {
        "method": plan["method"],
        "nodes": str(len(nodes)),
        "world_size": str(job["world_size"]),
        "slots": ",".join(slots) if len(set(slots)) > 1 else f"{slots[0]} on each",
        "accelerator": job["accelerator"],
        "hosts": hosts if len(hosts) <= LONG_FACT else f"{hosts[:60]}... ({len(hosts)} characters, sha256:{_hash(hosts, 16)})",
        "ranklaunch": ranklaunch.__version__,
    }


def _recorders(recorders: Plan, plan: Plan) -> Iterator[Item]:
    usual = {
        "PYTHONFAULTHANDLER": "1",
        "PYTHONPATH": "/opt/ranklaunch/rankside/path",
        "RANKLAUNCH_RECORDS_DIR": f"LOGS/records/node_{plan['job']['node_index']}",
    }
    if plan["job"]["accelerator"] == "npu":
        usual["ASCEND_PROCESS_LOG_PATH"] = "LOGS/ascend"
    if plan["job"]["accelerator"] == "gpu":
        usual["TORCH_NCCL_TRACE_BUFFER_SIZE"] = "2000"
        usual["TORCH_NCCL_DEBUG_INFO_TEMP_FILE"] = "RECORDS/nccl_trace_rank_"
        usual["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"] = "RECORDS/nccl_pipe_rank_"
        usual["TORCH_NCCL_DUMP_ON_TIMEOUT"] = "1"
    values = {each["name"]: each["value"] for each in recorders["variables"]}
    fifo = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
    different = {**_unusual(values, usual), **_unusual({"fifo": recorders["fifo"]}, {"fifo": fifo if fifo in values else ""})}
    text = " ".join(filter(None, [_all(different), _lacking(values, usual)]))
    if text:
        yield "recorders", f"recorders {text if values else '(none)'}"


def _kind(process: str) -> str:
    return re.split(r"[ ,][0-9{]|[,\n]", process)[0]


def _process(process: Plan, plan: Plan, names: Mapping[str, str]) -> str:
    node, name, rank = plan["job"]["nodes"][plan["job"]["node_index"]], process["name"], process["rank"]
    usual = {
        "log": f"{_logs(plan)}/{name.replace(' ', '_')}.log",
        "tag": f"[{name}] ",
        "behaviour": name,
        "rank": rank if name == f"rank {rank}" else None,
        "local_rank": None if rank is None else rank - node["first_rank"],
    }
    usual_env = {"RANKLAUNCH_ATTEMPT": str(plan["job"]["attempt"]), "PYTHONUNBUFFERED": "1"}
    if rank is not None or process["behaviour"] == "":
        del usual["behaviour"]
    rest = _short(_unusual(process, usual), names)
    env = _all(_short(_unusual(process["env"], usual_env), names))
    lines = [
        _flat({key: value for key, value in rest.items() if key not in ("name", "argv", "env", "unset")}, f"{name},").rstrip(","),
        " ".join(filter(None, [env, _lacking(process["env"], usual_env)])) if process["env"] else "with no variable added",
        f"without {' '.join(process['unset'])}" if process["unset"] else "",
        f"$ {_words(rest['argv'])}",
    ]
    return "\n    ".join(filter(None, lines))


def _usual_log(log: Plan, plan: Plan) -> Plan:
    return {"log": f"{_logs(plan)}/rank_{log['rank']}.log", "tag": f"[rank {log['rank']}] "}


def _unusual(values: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    """The values that are not as usual; an empty one in place of another is (none)."""
    different = {key: value for key, value in values.items() if key not in usual or usual[key] != value}
    return {key: "(none)" if key in usual and value in ("", None) else value for key, value in different.items()}


def _lacking(values: Mapping[str, Any], usual: Mapping[str, Any]) -> str:
    return " ".join(f"no {name}" for name in usual if name not in values)


def _file(file: Plan) -> Item:
    rest = dict(file)
    path, text = rest.pop("path"), _compact(rest.pop("text"))
    lines = text.splitlines()
    if _is_long(text):
        return f"file {path}", f"file {_flat(rest, path)}  {len(lines)} lines, sha256:{_hash(text, 12)}"
    return f"file {path}", "\n    | ".join([f"file {_flat(rest, path)}", *map(printable, lines)])


def _compact(text: str) -> str:
    """JSON without its spaces, but where people put some; anything else as it is."""
    try:
        return json.dumps(json.loads(text))
    except ValueError:
        return text


def _node(node: Plan) -> str:
    rest = {key: value for key, value in node.items() if key not in ("index", "host", "slots", "first_rank")}
    return _flat(rest, f"@{node['index']} {node['host'] or '(no name)'}, {node['slots']} slots from rank {node['first_rank']}")


# Words


def _words(argv: Sequence[str]) -> str:
    return printable(" ".join(shlex.quote(_cut(word)) for word in argv))


def _cut(word: str) -> str:
    if len(word) <= LONG_WORD:
        return word
    return f"{word[:20]}... ({len(word)} characters, sha256:{_hash(word, 12)})"


def _hash(text: str, digits: int) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:digits]


def _flat(value: Any, *before: str) -> str:
    """Names with their values, but for what is usual, empty or 0."""
    if not isinstance(value, dict):
        return printable(value) if isinstance(value, str) else json.dumps(value)
    shown = _all({key: inner for key, inner in value.items() if _is_shown(key, inner)})
    return " ".join(filter(None, (*before, shown)))


def _all(value: Mapping[str, Any]) -> str:
    return " ".join(f"{key}={_word(inner)}" for key, inner in value.items())


def _is_shown(key: str, value: Any) -> bool:
    if value in (0, False):
        return key in COUNTED_FROM_0
    return bool(value) and (key not in USUAL or USUAL[key] != value)


def _word(value: Any) -> str:
    if isinstance(value, dict):
        return f"({_flat(value)})"
    return printable(shlex.quote(_cut(value))) if isinstance(value, str) else json.dumps(value)


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
