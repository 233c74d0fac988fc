"""Plans as text for people and as shell script; JSON is in model.py. Secrets are hidden in all forms."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator

from ranklaunch import showing
from ranklaunch.env.job import Node
from ranklaunch.errors import counted
from ranklaunch.files import folder_of
from ranklaunch.plan import compact_text
from ranklaunch.plan.hints import behind
from ranklaunch.plan.megatron import Layout
from ranklaunch.plan.model import Console, File, Plan, Process, Tell
from ranklaunch.redact import redact

FOLDED = " \\\n  "  # line break within a shell command
FOLD = 100  # columns of a shown command's line


def as_text(plan: Plan, verbose: bool = False, here: Iterable[str] = ()) -> str:
    """Return a plan as text for people.

    verbose: show defaults too, and every rank separately. here: what comes from this machine although the plan is for another.
    """
    lines = [
        *_summary(plan),
        *_section("from this machine, not from the one that is planned", here),
        *_values(plan, verbose),
        *_section("warnings", plan.warnings),
        *_section("hints", filter(None, [behind.hint(plan.job.program)])),
        *_section("files", (f"{file.path}  (mode {file.mode}, {_content(file)})" for file in plan.files)),
        *_section("waits", (f"{wait.kind}: {wait.what}, at most {wait.timeout_s:g} s" for wait in plan.waits)),
        *_section("the same on all nodes", _facts(plan, verbose)),
        *_section("removed from the environment", _listed(_unset((*plan.services, *plan.processes)), verbose)),
        *_section("recorders", (f"{each.name}={each.value}  [{each.why}]" for each in plan.recorders.variables)),
        *_section("before planning again", _blocks(plan.gather, verbose)),
        *_section("before launch", _blocks(plan.prepare, verbose)),
        *_section("services", _blocks(plan.services, verbose)),
        *_section("processes", _blocks(plan.processes, verbose)),
        f"limits    each wait {plan.limits.wait_s:g} s, grace {plan.limits.grace_s:g} s",
        *([f"console   {_console(plan.console)}"] if plan.console else []),
        *([f"restarts  at most {plan.rounds.most} in place without progress"] if plan.rounds else []),
        *(_notifications(plan.tell) if plan.tell else ()),
    ]
    return "".join(f"{_printable(line)}\n" for line in lines)


def _notifications(tell: Tell) -> Iterator[str]:
    if tell.metrics_file:
        yield f"metrics   {tell.metrics_file}"
    if tell.metrics_port:
        yield f"metrics   port {tell.metrics_port}: /metrics, /healthz, /readyz"
    if tell.on_event:
        yield f"on event  {' '.join(redact.argv(tell.on_event))} EVENT FILE"
    if tell.trainjob:
        yield "TrainJob  its status gets the steps"


def _summary(plan: Plan) -> Iterator[str]:
    job = plan.job
    host = job.node.host or "(no name)"
    yield f"job       {job.name}, attempt {job.attempt}, platform {job.platform}"
    yield f"method    {plan.method}: {plan.why}"
    yield f"world     {counted(job.world_size, 'rank')} on {counted(len(job.nodes), 'node')}, {job.accelerator}"
    if job.is_idle:
        yield f"this node takes no part, {host}, and ends after the others"
    else:
        yield f"this node {job.node_index} of {len(job.nodes)}, {host}, {_ranks(job.node)}"
    if job.idle:
        yield f"idle      {showing.clipped(', '.join(each.host or '(no name)' for each in job.idle))}"
    if plan.layout:
        yield f"layout    {_sizes(plan.layout)}"


def _ranks(node: Node) -> str:
    """Return task, ranks and devices of a node."""
    task = f"{node.name}, " if node.task else ""
    devices = f" on devices {','.join(map(str, node.devices))}" if node.devices else ""
    if node.slots > 1:
        return f"{task}ranks {node.ranks[0]} to {node.ranks[-1]}{devices}"
    return f"{task}{f'rank {node.first_rank}' if node.slots else 'no rank'}{devices}"


def _console(console: Console) -> str:
    shown = f"ranks {console.ranks}" if console.ranks else "all ranks"
    most = f", at most {console.most} bytes, then rank 0, warnings and errors" if console.most else ""
    victims = "" if console.victims == "fold" else f", {console.victims} lines of victims"
    return f"{shown}{', equal lines once' if console.merge else ''}{most}{victims}"


def _values(plan: Plan, verbose: bool) -> Iterator[str]:
    shown = [r for r in plan.values if verbose or r.source != "default"]
    yield from _section("values", (f"{r.name} = {r.value or '(none)'}  [{r.source}]{_overrides(r.overrides)}" for r in shown))
    if len(shown) < len(plan.values):
        yield f"  ... {counted(len(plan.values) - len(shown), 'more value')} by default: --verbose shows all"


def _facts(plan: Plan, verbose: bool) -> Iterable[str]:
    facts = plan.muster.facts if plan.muster else {}
    return (f"{name} = {value or '(none)'}" for name, value in facts.items()) if verbose else _listed(facts, False)


def _listed(names: Iterable[str], verbose: bool) -> Iterable[str]:
    return names if verbose else filter(None, _wrapped(names))


def _blocks(processes: Iterable[Process], verbose: bool) -> Iterator[str]:
    blocks = (tuple(_shown(process)) for process in processes)
    for block in blocks if verbose else compact_text.folded(blocks):
        yield from block


def as_shell(plan: Plan) -> str:
    """Return a shell script that starts the same processes in the current folder and environment.

    The script is one subshell, so it can be pasted into a shell in use.
    """
    folders = dict.fromkeys(folder_of(process.log) for process in _all_processes(plan))
    lines = (
        "#!/bin/sh",
        *(f"# {comment}" for comment in _comments(plan)),
        "(",
        "set -eu",
        f"mkdir -p {FOLDED.join(_wrapped(folders))}",
        *(f"mkdir -m 700 {shlex.quote(folder)}" for folder in (plan.private, plan.recorders.folder) if folder),
        *(f"mkdir -p {shlex.quote(folder)}" for folder in _within(plan)),
        *(f"export {each.name}={shlex.quote(each.value)}" for each in plan.recorders.variables),
        *(line for file in plan.files for line in _written(file)),
        *map(_command, plan.prepare),
        *(_started(plan.processes) if not plan.services else _served(plan)),
        ")",
    )
    return "\n".join(lines) + "\n"


def _all_processes(plan: Plan) -> tuple[Process, ...]:
    return (*plan.prepare, *plan.services, *plan.processes)


def _comments(plan: Plan) -> Iterator[str]:
    """Yield the comments of the script: the job, and the steps that the script cannot do by itself."""
    job = plan.job
    yield f"{_comment(job.name)}, node {job.node_index} of {len(job.nodes)}, method {plan.method} ({_comment(plan.why)})"
    yield from (f"first: wait for {wait.kind} {_comment(wait.what)}" for wait in plan.waits)
    if plan.outputs and plan.outputs.folder:
        yield f"the ranks write below {_comment(plan.outputs.folder)}"
    if any(redact.argv(p.argv) != p.argv or redact.environment(p.env) != dict(p.env) for p in _all_processes(plan)):
        yield "*** stands for a secret: put it in before you run this"


def _within(plan: Plan) -> Iterable[str]:
    """Return the folders below the private folder that files need."""
    folders = dict.fromkeys(folder_of(file.path) for file in plan.files)
    return [folder for folder in folders if plan.private and folder.startswith(f"{plan.private}/")]


def _sizes(layout: Layout) -> str:
    return ", ".join(f"{name} {getattr(layout, name)}" for name in ("tp", "pp", "cp", "ep", "dp"))


def _served(plan: Plan) -> Iterator[str]:
    """Yield commands that run services until the processes have ended; without processes, until the services end themselves."""
    if not plan.processes:
        yield from _started(plan.services)
        return
    yield from _in_background(plan.services)
    yield from (f"{_command(process)} || status=$?" for process in plan.processes)
    yield 'kill "$@" 2> /dev/null || true'
    yield 'exit "$status"'


def _started(processes: tuple[Process, ...]) -> Iterator[str]:
    if len(processes) == 1:
        yield f"exec {_command(processes[0])}"
        return
    yield from _in_background(processes)
    yield 'for pid in "$@"; do wait "$pid" || status=$?; done'
    yield 'exit "$status"'


def _in_background(processes: Iterable[Process]) -> Iterator[str]:
    """Yield commands that start processes in the background; the pids become the shell's arguments ($@)."""
    yield "set --"
    for process in processes:
        yield f"{_command(process)} &"
        yield 'set -- "$@" "$!"'
    yield "status=0"


def _command(process: Process) -> str:
    words = ["env", *(("-C", process.cwd) if process.cwd else ())]
    for name in process.unset:
        words += ["-u", name]
    words += [f"{name}={value}" for name, value in redact.environment(process.env).items()]
    # env(1) would take a program with = in its path for one more variable.
    start = ["sh", "-c", 'exec "$0" "$@"'] if "=" in process.argv[0] else []
    return FOLDED.join(_wrapped([*words, *start, *redact.argv(process.argv)]))


def _written(file: File) -> tuple[str, str]:
    path = shlex.quote(file.path)
    write = f"cp {shlex.quote(file.source)} {path}" if file.source else f"printf %s {shlex.quote(file.text)} > {path}"
    return write, f"chmod {file.mode} {path}"


def _content(file: File) -> str:
    return f"a copy of {file.source}" if file.source else f"{len(file.text)} characters"


def _shown(process: Process) -> Iterator[str]:
    template = f", by the template {process.template}" if process.template else ""
    yield f"{process.name}, log {process.log}" + (f", in {process.cwd}" if process.cwd else "") + template
    env = " ".join(f"{name}={shlex.quote(_short_path(name, value))}" for name, value in redact.environment(process.env).items())
    yield f"  {env}"
    first, *rest = _wrapped(redact.argv(process.argv))
    yield f"  {first}"
    yield from (f"    {line}" for line in rest)


def _short_path(name: str, value: str) -> str:
    """Return the value of PATH with only its first folder, and any other value unchanged. The first folder decides most commands."""
    first, colon, _ = value.partition(":")
    return f"{first}:..." if name == "PATH" and colon else value


def _wrapped(words: Iterable[str]) -> list[str]:
    """Return quoted shell words in lines of about FOLD columns."""
    lines = [""]
    for word in map(shlex.quote, words):
        if lines[-1] and len(lines[-1]) + len(word) > FOLD:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}" if lines[-1] else word
    return lines


def _section(title: str, rows: Iterable[str]) -> Iterator[str]:
    for i, row in enumerate(rows):
        if i == 0:
            yield title
        yield f"  {row}"


def _unset(processes: tuple[Process, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for process in processes for name in process.unset))


def _overrides(candidates: Iterable[object]) -> str:
    values = [f"{c.source}={c.value}" for c in candidates]  # type: ignore[attr-defined]
    return f" over {', '.join(values)}" if values else ""


def _printable(line: str) -> str:
    """Return a line with control characters escaped: a value must not move the terminal's cursor, nor look like another line."""
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() or "\udc80" <= c <= "\udcff" else ascii(c)[1:-1] for c in line)


def _comment(text: str) -> str:
    return " ".join(text.split())
