"""A job's specification from the command line of `ranklaunch spec`: its options, which override values from files."""

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

# Options for common values; --set sets any.
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
    "--values", "values", "values as YAML or JSON (docs/spec-values.md); may be repeated: a later file overrides an earlier one, and "
    "options override all files", "FILE",
)  # fmt: skip
IMAGE = Option("--image", "image", "image of the container, with tag or digest [image]")
ENV = Option("--env", "env", "a variable of the environment; may be repeated [env]", "NAME=VALUE")
SET = Option("--set", "set", "any other value, lists and maps as JSON; may be repeated", "KEY=VALUE")
SUBMIT = Option("--submit", "submit", "show the specification, then submit it with kubectl or sbatch", "")
OPTIONS = (
    VALUES, IMAGE, *(Option(name, path, f"{KEYS[path].meaning} [{path}]") for name, path in PATHS.items()), ENV, SET,
    options.of_variable(TEMPLATES), SUBMIT,
)  # fmt: skip


class Parser(options.Parser):
    """Parser of `ranklaunch spec`. kind: the engine; its own names of options get a hint, like those of other tools."""

    kind = ""

    def _hint(self, name: str) -> str:
        paths = tuple(keys.paths(JobSpec))
        key = (sbatch.meant(name) if self.kind == "slurm" else "") or familiar.meant(name, paths)
        if key.startswith(("slurm.directives=", "slurm.devices=")):
            return f"; here it is {' and '.join(f'--set {shlex.quote(each)}' for each in key.split(' and '))}"
        option = next((option for option, path in PATHS.items() if path == key), f"--set {key}=..." if key in paths else key)
        return f"; here it is {option}" if key else super()._hint(name)


def read(kind: str, options: list[tuple[str, str]], program: list[str]) -> JobSpec:
    """Return the specification from a command line. Raises UsageError or ConfigError with all problems.

    kind: the engine. options: values with their texts, in order. program: the program and its arguments.
    """
    values, sources, problems = _values(kind, options, program)
    reading = Values(sources)
    spec = reading.spec(values)
    _check([*problems, *reading.problems], spec)
    return spec


def of_values(kind: str, values: Mapping[str, object]) -> JobSpec:
    """Return the specification from nested values. Raises ConfigError with all problems."""
    reading = Values()
    spec = reading.spec({**values, "engine": kind})
    _check([*_of_engine(kind, values, ()), *reading.problems], spec)
    return spec


def warnings(spec: JobSpec) -> list[str]:
    """Return all warnings about a correct specification."""
    return [*warn.warnings(spec), *_warnings_of_launcher(spec)]


def _warnings_of_launcher(spec: JobSpec) -> Iterator[str]:
    """Warn of a program that is a launcher itself, if `run` will refuse it. The table of launchers is that of `plan`."""
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
        yield f"mode={method} starts a cluster already, and {starter.name} would start a second one, so it will not start: {remedy}"
    elif method and method not in (*launchers.ONCE, starter.starter.served_by):
        yield f"mode={method} would start {starter.name}, which starts ranks itself, for each rank, so it will not start: {remedy}"
    elif not method and not starter.starter.served_by:
        # Unknown here: the container's files, and the address of node 0.
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
        parts = {"tag": "", "digest": "", **parts_of_image(last[IMAGE.value])}  # also clears the tag and digest of a file's image
        pairs += [("option --image", f"image.{name}", part) for name, part in parts.items()]
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
    """Return source, key and text of each --set; add a problem for each malformed one."""
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
    """Yield a problem for an option that sets another engine than KIND, and for an unknown engine in a file."""
    for source, path, text in pairs:
        if path == "engine" and text != kind:
            yield Problem(f"{source}={text!r}: the engine is KIND, the word after spec, here {kind}; leave it out", True)
    engine = values.get("engine")
    if engine is not None and engine not in KINDS:
        hint = familiar.word("engine", str(engine), KINDS)
        yield Problem(f"engine={engine!r}: expected one of {', '.join(KINDS)}{hint}")


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
        members = values.get(each)
        if not isinstance(members, dict):
            members = values[each] = {} if members is None else members
        if not isinstance(members, dict):
            return  # the file has no map there, which is reported when the values are read
        values = members
    values[name] = value


def _merged(first: Any, second: Any) -> Any:
    """Return the values of two files merged as by Helm: maps key by key, any other value from the second."""
    if not (isinstance(first, dict) and isinstance(second, dict)):
        return second
    return {**first, **{name: _merged(first.get(name), value) for name, value in second.items()}}


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
    """Return a problem's text. If it asks to set a value that has an option, the option is added."""
    asked = re.search(r"made from ([\w.]+); set that$", text)
    option = OPTION_OF.get(asked[1]) if asked else None
    return f"{text} ({option})" if option else text
