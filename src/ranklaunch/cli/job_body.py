"""A job in the form of ModelArts' API: environment and command of its containers, for `plan`.

Sources: ModelArts' manual on the environment variables of a training container, and its API reference on creating a training job.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ranklaunch.cli import options
from ranklaunch.env.reader import Reader
from ranklaunch.env.settings import ALL_NODES, ENV_FILE, NODE_INDEX, ROOT, SLOTS, SPEC
from ranklaunch.errors import MANY_DIGITS, ConfigError, has_many_digits
from ranklaunch.files import NoFiles
from ranklaunch.showing import clipped
from ranklaunch.specs.pod import POOL_FLAVOR, POOL_FLAVORS

HOME = "/home/ma-user"
MOUNTED = f"{HOME}/modelarts"
MOST_NODES = 1_000_000
USAGE = "ranklaunch run [OPTIONS] [--] PROGRAM [ARGS...]"
_CHANNELS = ("inputs", "outputs")
_VARIABLE = r"\$\{(\w+)\}|\$([A-Za-z_]\w*)"
_PLAIN = re.compile(rf"'[^']*'|\\.|{_VARIABLE}|[^'\"\\$]+|.", re.DOTALL)
_IN_QUOTES = re.compile(rf"\\.|{_VARIABLE}|[^\"\\$]+|.", re.DOTALL)
_OPERATORS = re.compile(r"[;&|<>()`\n]")
_END_OF_LINE = re.compile(r"&&|[;\n]")
_EXEC = re.compile(r"\s*exec\s+(?:\S*/)?ranklaunch\s+run\b")
_MARK = "\ue000{}\ue001"  # stands for the value of a variable until the command is split into words


class _WrongBodyError(ValueError):
    pass


@dataclass(frozen=True)
class Body:
    """Training job. devices: of a node, None if the flavor does not tell. folder: where the command starts, "" for the image's folder."""

    name: str
    nodes: int
    devices: int | None
    env: Mapping[str, str]
    command: str
    args: tuple[str, ...]
    folder: str


def read(parser: options.Parser, argv: list[str], env: Mapping[str, str]) -> options.CommandLine | None:
    """Return the request of node 0 as the platform would start it; None without --spec.

    Options of the command line override those of the body's command. --env-file has the image's variables. Raises UsageError and
    ConfigError.
    """
    pairs, words = parser.split(argv)
    own = Reader(env, NoFiles(), dict(pairs))
    if not own.get(SPEC):
        return None
    if words:
        shown = clipped(shlex.join(words))
        parser.refuse(f"{SPEC.option} names a job with its own program: leave out {shown}")
    where = options.named(own, SPEC)
    of_image = options.read_env_file(own) if own.get(ENV_FILE) else {}
    try:
        body = parsed(options.text_of(own, SPEC))
        inside = container(body, of_image)
        run_words = command_words(body, inside)
    except _WrongBodyError as error:
        wanted = "the JSON that `ranklaunch spec modelarts` writes"
        msg = f"{where}: {error}; {SPEC.option} reads {wanted}"
        raise ConfigError(msg) from None
    if dict(pairs).get(ALL_NODES.value) and NODE_INDEX.value in dict(pairs):
        both = f"{ALL_NODES.option} and {NODE_INDEX.option}"
        parser.refuse(f"{both}: expected one of the two, for every node or for one")
    run_pairs, program = options.JobParser("run", "", USAGE).split(run_words)
    values = {**dict(run_pairs), **dict(pairs)}
    if body.devices is None and not Reader(inside, NoFiles(), values).is_set(SLOTS):
        msg = f"{where}: the flavor does not tell the number of devices of a node: give {SLOTS.option} N"
        raise ConfigError(msg)
    for variable in (SPEC, ENV_FILE):
        values.pop(variable.value, None)
    request = options.requested(values, program, inside, own.get(ROOT), recorded=True)
    return options.CommandLine(replace(request, cwd=body.folder or request.cwd), own)


def parsed(text: str) -> Body:
    """Return the job of a request body. Raises _WrongBodyError with the first problem."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        msg = MANY_DIGITS if has_many_digits(error) else f"not JSON: {error}"
        raise _WrongBodyError(msg) from None
    body = _object(data, "the body")
    if body.get("tasks"):
        msg = "tasks: expected a job with one kind of node, without tasks"
        raise _WrongBodyError(msg)
    parts = ("metadata", "algorithm", "spec")
    metadata, algorithm, spec = (_object(body.get(name), name) for name in parts)
    engine = _object(algorithm.get("engine"), "algorithm.engine")
    _text(engine.get("image_url"), "algorithm.engine.image_url")
    resource = _object(spec.get("resource"), "spec.resource")
    nodes = resource.get("node_count", 1)
    if not isinstance(nodes, int) or isinstance(nodes, bool) or not 1 <= nodes <= MOST_NODES:
        msg = f"spec.resource.node_count={nodes!r}: expected a whole number from 1"
        raise _WrongBodyError(msg)
    folder = str(algorithm.get("working_dir") or "")
    if folder and not folder.startswith("/"):
        msg = f"algorithm.working_dir={clipped(folder)!r}: expected a path from the root"
        raise _WrongBodyError(msg)
    parameters = _objects(algorithm.get("parameters", []), "algorithm.parameters")
    args = [f"--{each.get('name')}={each.get('value', '')}" for each in parameters]
    channels = list(_channels(algorithm))
    of_channels = {name: path for name, path, is_variable in channels if is_variable}
    args += [f"--{name}={path}" for name, path, is_variable in channels if not is_variable]
    return Body(
        name=_text(metadata.get("name"), "metadata.name"),
        nodes=nodes,
        devices=_devices(resource),
        env={**of_channels, **_environments(algorithm)},
        command=_text(algorithm.get("command"), "algorithm.command"),
        args=tuple(args),
        folder=folder,
    )


def container(body: Body, of_image: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of node 0. The job's name stands for the id that ModelArts will give."""
    job = f"modelarts-job-{body.name.lower().replace('_', '-')}"
    pods = [f"{job}-worker-{node}" for node in range(body.nodes)]
    platform = {
        "HOME": HOME,
        "MA_HOME": HOME,
        "MA_JOB_DIR": f"{MOUNTED}/user-job-dir",
        "MA_MOUNT_PATH": MOUNTED,
        "MA_LOG_DIR": f"{MOUNTED}/log",
        "MA_NUM_HOSTS": str(body.nodes),
        "MA_VJ_NAME": job,
        "MA_TASK_NAME": "worker",
        "MA_CURRENT_INSTANCE_NAME": pods[0],
        "MA_SCHEDULE_CNT": "1",
        "MA_PROC_START_CNT": "1",
        "VC_TASK_INDEX": "0",
        "VC_WORKER_NUM": str(body.nodes),
        "VC_WORKER_HOSTS": ",".join(f"{pod}.{job}" for pod in pods),
        **({} if body.devices is None else {"MA_NUM_GPUS": str(body.devices)}),
    }
    return {**of_image, **platform, **body.env}


def command_words(body: Body, env: Mapping[str, str]) -> list[str]:
    """Return the words after `ranklaunch run`, as the platform's shell would pass them on."""
    words = _split(_after_setup(body.command), env)
    words = words[1:] if words[:1] == ["exec"] else words
    if len(words) < 2 or words[0].rpartition("/")[2] != "ranklaunch" or words[1] != "run":
        msg = f"algorithm.command={clipped(body.command)!r}: expected {USAGE}"
        raise _WrongBodyError(msg)
    return [*words[2:], *body.args]


def _pieces(command: str) -> Iterator[tuple[re.Match[str], bool]]:
    """Yield the pieces of a command in order; True for those within double quotes."""
    at, in_quotes = 0, False
    while at < len(command):
        piece = (_IN_QUOTES if in_quotes else _PLAIN).match(command, at)
        assert piece  # any character matches
        yield piece, in_quotes
        at = piece.end()
        in_quotes ^= piece[0] == '"'


def _after_setup(command: str) -> str:
    """Return the part from `exec ranklaunch run` on; the whole command if nothing is before it."""
    for piece, in_quotes in _pieces(command):
        if in_quotes or piece[0][0] in "'\\":
            continue
        for end in _END_OF_LINE.finditer(command, piece.start(), piece.end()):
            if _EXEC.match(command, end.end()):
                return command[end.end() :].lstrip()
    return command


def _split(command: str, env: Mapping[str, str]) -> list[str]:
    """Split a command as a shell does, with variables replaced where it would."""
    pieces: list[str] = []
    values: list[str] = []
    for match, in_quotes in _pieces(command):
        piece, name = match[0], match[1] or match[2]
        if name:
            if name not in env:
                of_image = f"give the image's variables by {ENV_FILE.option} FILE"
                msg = f"algorithm.command: ${{{name}}} is not set by the body; {of_image}"
                raise _WrongBodyError(msg)
            pieces.append(_MARK.format(len(values)))
            values.append(env[name])
            continue
        if in_quotes and piece in ("\\$", "\\`"):  # shlex keeps this backslash, a shell does not
            pieces.append(_MARK.format(len(values)))
            values.append(piece[1])
            continue
        if _is_operator(piece, in_quotes):
            wanted = f"expected one command without {piece.strip() or 'line ends'!r}"
            setup = "lines before it end with `&& exec ranklaunch run ...`"
            msg = f"algorithm.command={clipped(command)!r}: {wanted}; {setup}"
            raise _WrongBodyError(msg)
        pieces.append(piece)
    try:
        words = shlex.split("".join(pieces))
    except ValueError as error:
        msg = f"algorithm.command={clipped(command)!r}: {error}"
        raise _WrongBodyError(msg) from None
    mark = _MARK.format(r"(\d+)")
    return [re.sub(mark, lambda match: values[int(match[1])], word) for word in words]


def _is_operator(piece: str, in_quotes: bool) -> bool:
    """Return True for syntax that needs a shell: several commands, redirections, substitution."""
    if piece[0] in "'\\":
        return False
    return "`" in piece if in_quotes else bool(_OPERATORS.search(piece))


def _devices(resource: Mapping[str, Any]) -> int | None:
    """Return the devices of a node, None if they are unknown."""
    custom = resource.get("main_container_customized_flavor")
    count = custom.get("accelerator_num") if isinstance(custom, dict) else None
    if isinstance(count, int) and not isinstance(count, bool):
        return count
    by_flavor = {POOL_FLAVOR.format(size): count for count, size in POOL_FLAVORS.items()}
    return by_flavor.get(str(resource.get("flavor_id")))


def _environments(algorithm: Mapping[str, Any]) -> dict[str, str]:
    environments = algorithm.get("environments", {})
    environments = _object(environments, "algorithm.environments")
    if not all(isinstance(text, str) and "\0" not in text for text in environments.values()):
        msg = "algorithm.environments: expected texts by name"
        raise _WrongBodyError(msg)
    return environments


def _channels(algorithm: Mapping[str, Any]) -> Iterator[tuple[str, str, bool]]:
    """Yield name and folder of each input and output, and True if a variable passes the folder, False for an option."""
    for kind in _CHANNELS:
        for i, each in enumerate(_objects(algorithm.get(kind, []), f"algorithm.{kind}")):
            name = str(each.get("name", ""))
            folder = str(each.get("local_dir") or f"{MOUNTED}/{kind}/{name}_{i}")
            yield name, folder, each.get("access_method") == "env"


def _object(result: Any, path: str) -> dict[str, Any]:
    if not isinstance(result, dict):
        msg = f"{path}: expected an object"
        raise _WrongBodyError(msg)
    return result


def _objects(objects: Any, path: str) -> list[dict[str, Any]]:
    if not isinstance(objects, list) or not all(isinstance(each, dict) for each in objects):
        msg = f"{path}: expected a list of objects"
        raise _WrongBodyError(msg)
    return objects


def _text(result: Any, path: str) -> str:
    if not isinstance(result, str) or not result:
        msg = f"{path}: expected a text"
        raise _WrongBodyError(msg)
    return result
