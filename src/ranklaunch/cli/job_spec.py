"""A job's specification from the command line of `ranklaunch spec`: its options, and the file of values that they go before."""

from __future__ import annotations

import importlib
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ranklaunch.adapters import launchers
from ranklaunch.adapters.launchers.shared import place_conflicts, starters
from ranklaunch.adapters.launchers.shared.place_conflicts import Place
from ranklaunch.cli import options
from ranklaunch.cli.options import Option
from ranklaunch.env.job import Program
from ranklaunch.env.reader import Reader
from ranklaunch.env.settings import METHOD, TEMPLATES
from ranklaunch.errors import ConfigError, UsageError, nearest
from ranklaunch.files import NoFiles
from ranklaunch.showing import shown
from ranklaunch.specs import documents, familiar, keys, pod, refuse, sbatch, warn
from ranklaunch.specs.image import parts_of_image
from ranklaunch.specs.model import KINDS, JobSpec
from ranklaunch.specs.values import Problem, Values, parsed
from ranklaunch.system.disk import DiskFiles

MOST_BYTES = 4 * 1024 * 1024

# Options for values that are given most often; --set gives any.
PATHS: dict[str, str] = {
    "--name": "name",
    "--namespace": "namespace",
    "--nodes": "nodes",
    "--devices": "devicesPerNode",
    "--device-kind": "device.kind",
    "--method": "mode",
    "--cpu": "resources.cpu",
    "--memory": "resources.memory",
    "--shm": "shm.sizeLimit",
    "--working-dir": "workingDir",
    "--queue": "scheduling.queue",
    "--max-restarts": "restart.maxRestarts",
    "--deadline-s": "lifecycle.deadlineSeconds",
    "--service-account": "serviceAccountName",
    "--flavor": "modelarts.flavor",
    "--pool-id": "modelarts.poolId",
    "--partition": "slurm.partition",
}
OPTION_OF = {path: name for name, path in PATHS.items()}
KEYS = dict(keys.every(JobSpec))
VALUES = Option(
    "--values", "values", "values as YAML or JSON (docs/spec-values.md); may be repeated: a later file goes before an earlier one, and "
    "options before all", "FILE",
)  # fmt: skip
IMAGE = Option("--image", "image", "image of the container, with tag or digest [image]")
ENV = Option("--env", "env", "a variable of the environment; may be repeated [env]", "NAME=VALUE")
SET = Option("--set", "set", "any other value, lists and maps as JSON; may be repeated", "KEY=VALUE")
SUBMIT = Option("--submit", "submit", "send it with kubectl or sbatch, after it was shown", "")
OPTIONS = (
    VALUES, IMAGE, *(Option(name, path, f"{KEYS[path].meaning} [{path}]") for name, path in PATHS.items()), ENV, SET,
    options.of_variable(TEMPLATES), SUBMIT,
)  # fmt: skip


class Parser(options.Parser):
    """Parser of `ranklaunch spec`. kind: the engine, whose own names of options get a hint, as those of other tools."""

    kind = ""

    def _hint(self, name: str) -> str:
        paths = tuple(keys.paths(JobSpec))
        key = (sbatch.meant(name) if self.kind == "slurm" else "") or familiar.meant(name, paths)
        if key.startswith(("slurm.directives=", "slurm.devices=")):
            return f"; here it is {' and '.join(f'--set {shlex.quote(each)}' for each in key.split(' and '))}"
        option = next((option for option, path in PATHS.items() if path == key), f"--set {key}=..." if key in paths else key)
        return f"; here it is {option}" if key else super()._hint(name)


def read(kind: str, options: list[tuple[str, str]], program: list[str]) -> JobSpec:
    """kind: the engine. given: the options with their texts, in order. Raises UsageError or ConfigError with every problem found."""
    values, sources, problems = _values(kind, options, program)
    reading = Values(sources)
    spec = reading.spec(values)
    _check([*problems, *reading.problems], spec)
    return spec


def of_values(kind: str, values: Mapping[str, object]) -> JobSpec:
    """Return the job's specification of nested values alone. Raises ConfigError with every problem found."""
    reading = Values()
    spec = reading.spec({**values, "engine": kind})
    _check([*_of_engine(kind, values, ()), *reading.problems], spec)
    return spec


def warnings(spec: JobSpec) -> list[str]:
    """Return what the author of a correct specification should know."""
    return [*warn.warnings(spec), *_warnings_of_launcher(spec)]


def _warnings_of_launcher(spec: JobSpec) -> Iterator[str]:
    """Yield why `run` will refuse a program that is a launcher itself, by the table of `plan`."""
    program = Program(spec.module or spec.script, spec.args, bool(spec.module))
    starter = starters.Starters().find(program, spec.env)
    if not starter:
        return
    method = {each["name"]: each.get("value", "") for each in pod.environment(spec)}.get(METHOD.names[0], "")
    instead = starter.instead.removeprefix("ranklaunch run ")
    remedy = f"write {instead}" if instead.startswith("--method") else f"write {instead}, without {starter.name}"
    if starter.is_run_within(program):
        yield f"the program is {starter.name}, which would start the same job below this one, so it will not start: {remedy}"
    elif method and method == starter.starter.cluster:
        yield f"mode={method} has a cluster started already, and {starter.name} is for one of its own, so it will not start: {remedy}"
    elif method and method not in (*launchers.ONCE, starter.starter.served_by):
        yield f"mode={method} would start {starter.name}, which starts ranks itself, for each rank, so it will not start: {remedy}"
    elif not method and not starter.starter.served_by:
        # Unknown: files of the container, and the address of node 0.
        reader = Reader(spec.env, NoFiles(), {})
        places = (Place(spec.nodes, node, "", reader=reader) for node in (0, spec.nodes - 1))
        wrong = next(filter(None, (place_conflicts.reason(starter, place, spec.env) for place in places)), "")
        if wrong:
            yield f"nodes={spec.nodes}, and the program is {starter.name}, {wrong}, so it will not start: {remedy}"


def unknown_kind(kind: str) -> str:
    """Return the message about a KIND that does not exist."""
    return f"unknown kind {kind!r}: expected one of {', '.join(KINDS)}{familiar.word('engine', kind, KINDS)}"


def _values(kind: str, options: list[tuple[str, str]], program: list[str]) -> tuple[dict[str, Any], dict[str, str], list[Problem]]:
    """Return the nested values, the option behind each value of the command line, and the problems."""
    last = dict(options)
    values: dict[str, Any] = {}
    for path in filter(None, _every(VALUES, options)):
        values = _merged(values, _read(path))
    sources: dict[str, str] = {}
    problems: list[Problem] = []
    pairs = [(f"option {name}", path, last[path]) for name, path in PATHS.items() if path in last]
    if IMAGE.value in last:
        whole = {"tag": "", "digest": "", **parts_of_image(last[IMAGE.value])}  # those of the file's image go with it
        pairs += [("option --image", f"image.{name}", part) for name, part in whole.items()]
    pairs += _pairs_set(_every(SET, options), problems)
    problems += _of_engine(kind, values, pairs)
    for source, path, text in pairs:
        _put(values, path, _of_option(source, path, text, problems))
        sources[path] = source
    _put_env(values, _every(ENV, options), problems)
    if program:
        _put_program(values, program)
    values["engine"] = kind
    return values, sources, problems


def _pairs_set(words: Iterable[str], problems: list[Problem]) -> list[tuple[str, str, str]]:
    """Return source, key and text of each --set; add a problem for each word that is none."""
    pairs = []
    for word in words:
        path, equals, text = word.partition("=")
        if equals and path in KEYS:
            pairs.append((f"option --set {path}", path, text))
        else:
            why = f"unknown key{_hint(path)}" if equals else "expected KEY=VALUE"
            problems.append(Problem(f"option --set {word!r}: {why}", True))
    return pairs


def _of_engine(kind: str, values: Mapping[str, object], pairs: Iterable[tuple[str, str, str]]) -> Iterator[Problem]:
    """Yield a problem for each engine that is not the command's KIND, and of a file for one that does not exist."""
    for source, path, text in pairs:
        if path == "engine" and text != kind:
            yield Problem(f"{source}={text!r}: the engine is KIND, the word after spec, here {kind}; leave it out", True)
    named = values.get("engine")
    if named is not None and named not in KINDS:
        hint = familiar.word("engine", str(named), KINDS)
        yield Problem(f"engine={named!r}: expected one of {', '.join(KINDS)}{hint}")


def _hint(path: str) -> str:
    return sbatch.hint(path) or nearest(path, KEYS) or familiar.hint(path, keys.paths(JobSpec)) or ": docs/spec-values.md has them all"


def _of_option(source: str, path: str, text: str, problems: list[Problem]) -> object:
    try:
        return parsed(KEYS[path], text)
    except ValueError as error:
        problems.append(Problem(f"{source}={shown(path, text)!r}: {error}", True))
        return None


def _every(option: Option, options: list[tuple[str, str]]) -> list[str]:
    return [text for value, text in options if value == option.value]


def _put(values: dict[str, Any], path: str, value: object) -> None:
    group, _, name = path.rpartition(".")
    for each in group.split(".") if group else ():
        below = values.get(each)
        if not isinstance(below, dict):
            below = values[each] = {} if below is None else below
        if not isinstance(below, dict):
            return  # what the file has there is no map, which is told when it is read
        values = below
    values[name] = value


def _merged(below: Any, above: Any) -> Any:
    """Return what two files say together, as Helm merges them: maps by their keys, all else whole."""
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    return {**below, **{name: _merged(below.get(name), value) for name, value in above.items()}}


def _put_env(values: dict[str, Any], words: list[str], problems: list[Problem]) -> None:
    env = dict(values.get("env") or {}) if isinstance(values.get("env"), (dict, type(None))) else None
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name:
            problems.append(Problem(f"option --env {word!r}: expected NAME=VALUE", True))
        elif env is not None:
            env[name] = text
    if words and env is not None:
        values["env"] = env


def _put_program(values: dict[str, Any], words: list[str]) -> None:
    program = options.program_of(words)
    values.update(script="" if program.module else program.path, module=program.path if program.module else "", args=list(program.args))


def _read(path: str) -> dict[str, Any]:
    try:
        text = DiskFiles().text(path, MOST_BYTES)
    except (ValueError, UnicodeError) as error:
        msg = f"--values {path}: {error}"
        raise ConfigError(msg) from None
    if text is None:
        msg = f"--values {path}: no such file, or it cannot be read"
        raise UsageError(msg)
    data = _parsed(path, text)
    if not isinstance(data, dict):
        msg = f"--values {path}: expected a map of values, found {type(data).__name__}"
        raise ConfigError(msg)
    return data


def _parsed(path: str, text: str) -> object:
    try:
        return documents.parsed(text, None if path.endswith(".json") else _yaml)
    except ValueError as error:
        msg = f"--values {path}: {error}"
        raise ConfigError(msg) from None


def _yaml() -> Any:
    try:
        return importlib.import_module("yaml")
    except ImportError:
        msg = "YAML needs PyYAML, which is not installed: pip install 'ranklaunch[yaml]', in ranklaunch's own environment, or write JSON"
        raise ValueError(msg) from None


def _check(problems: list[Problem], spec: JobSpec) -> None:
    if problems and all(problem.on_command_line for problem in problems):
        raise UsageError("\n".join(problem.text for problem in problems))
    texts = [problem.text for problem in problems] or refuse.problems(spec)
    if texts:
        raise ConfigError(list(dict.fromkeys(map(_with_option, texts))))


def _with_option(text: str) -> str:
    """Return a problem with the option of the value that it asks to set."""
    asked = re.search(r"made from ([\w.]+); set that$", text)
    option = OPTION_OF.get(asked[1]) if asked else None
    return f"{text} ({option})" if option else text
