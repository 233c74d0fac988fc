"""Measure the shape of the code: four walks through a running ranklaunch, figures of its source.

    python tools/walks.py                      all figures of this checkout
    python tools/walks.py --source FOLDER      of another checkout, also of an older one
    python tools/walks.py --static             figures of the source alone: starts nothing
    python tools/walks.py adapters/launchers   tokens of each file in a folder

The figures compare two states of the code. Nothing enforces them.

A walk is the list of calls between two events of a real run, such as the exit of a rank and its
verdict. Calls of all Python functions of the package count, also lambdas and comprehensions. The
bodies of modules and classes do not count, nor does a generator that is resumed. Python 3.12 and
newer run comprehensions without a call: compare figures of one Python only.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import io
import itertools
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

TOOL = Path(__file__).resolve()
ROOT = TOOL.parent.parent
PACKAGE = "ranklaunch"

# The walks

RANKS = 2
CODE = 43  # exit code of the rank that fails; nothing else in the run exits with it
STATUSES = (CODE, CODE << 8)  # the same as an exit code, and as a wait status
LINE = "a line for the console"
SETTLED_S = 2.0  # from the start of a rank to READY: all timers of the start are due by then
READY = "ready for the walk"  # a line; by the next step of the loop, timers due before are done
QUIET_S = 0.5  # from SETTLED to the failure or the line: output of one burst is not read for steps
SETTLED, RECORD = "settled", "walk.json"  # files in the working folder of the run
LIMIT_S = 120.0  # of one run

SETTLE = f"""
import os, sys, time

def wait_for(name):
    until = time.monotonic() + {LIMIT_S / 2}
    while not os.path.exists(name) and time.monotonic() < until:
        time.sleep(0.02)

rank, again = os.environ["RANK"], os.path.exists("failed")
if rank == "1" and not again:
    time.sleep({SETTLED_S})
    print({READY!r}, flush=True)
    wait_for({SETTLED!r})
    time.sleep({QUIET_S})
"""
FAIL = f"""
if again:
    sys.exit(0)
if rank == "1":
    open("failed", "w").close()
    sys.exit({CODE})
time.sleep(60)
"""
PRINT = f"""
if rank == "1":
    print({LINE!r}, flush=True)
wait_for({RECORD!r})
"""
MODELARTS = {
    "MA_NUM_HOSTS": "4",
    "MA_NUM_GPUS": "8",
    "MA_TASK_NAME": "worker",
    "MA_VJ_NAME": "ma-job-5d2e7c1a",
    "MA_CURRENT_INSTANCE_NAME": "ma-job-5d2e7c1a-worker-2",
    "VC_TASK_INDEX": "2",
    "VC_WORKER_NUM": "4",
    "VC_WORKER_HOSTS": ",".join(f"ma-job-5d2e7c1a-worker-{i}.ma-job-5d2e7c1a" for i in range(4)),
    "MA_LOG_DIR": "/logs",
}


@dataclass(frozen=True)
class Walk:
    """A run, and the two events between which its calls are a walk.

    Functions are named MODULE:FUNCTION. A boundary may have several names: a checkout needs one of
    them. When a function is renamed, add the new name in front and keep the old one.

    | field | meaning |
    | --- | --- |
    | `program` | Python that each rank runs; "": `ranklaunch plan` is run, which starts nothing |
    | `sign` | "status": an argument called code or status is that of the failed rank |
    | | "line": an argument holds the line; "": the walk needs no sign |
    | `begins` | with the last call by one of these before the sign; without a sign, one of these |
    | `ends` | with the return of one of these |
    | `ends_with` | text in an argument of that call |
    | `times` | number of such returns |
    """

    title: str
    begins: tuple[str, ...]
    ends: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    program: str = ""
    sign: str = ""
    ends_with: str = ""
    times: int = 1


CALLBACKS = ("system.loop:step",)  # calls back for each event: a signal, a pidfd, a pipe, a timer
WALKS = {
    "plan": Walk(
        "a variable -> argv",
        begins=("plan.planning:make_plan",),
        ends=("plan.planning:make_plan",),
        env={**MODELARTS, "RANKLAUNCH_METHOD": "torchrun"},
    ),
    "verdict": Walk(
        "an exit status -> verdict.json",
        begins=CALLBACKS,
        ends=("supervise.record:_write",),
        ends_with="verdict.json",
        program=SETTLE + FAIL,
        sign="status",
    ),
    "line": Walk(
        "a line of output -> the console",
        begins=CALLBACKS,
        ends=("output.console:write", "supervise.output.console:write"),
        ends_with=LINE,
        program=SETTLE + PRINT,
        sign="line",
    ),
    "round": Walk(
        "a failure -> the next round",
        begins=CALLBACKS,
        ends=("processes.children:_start", "supervise.ranks.children:_start"),
        env={"RANKLAUNCH_MAX_RESTARTS": "1"},
        program=SETTLE + FAIL,
        sign="status",
        times=RANKS,
    ),
}


@dataclass(frozen=True)
class Figures:
    """Figures of one walk.

    modules: in the order of their first call. last: module of the last call. changes: calls whose
    module differs from the previous call's in the same thread. kinds: classes of the package whose
    instances are arguments or results; the receiver of a method is not an argument. carriers:
    classes with a code or status field equal to the failed rank's, in the order of their first use.
    """

    title: str
    calls: int
    changes: int
    modules: Sequence[str]
    last: str
    kinds: Sequence[str]
    carriers: Sequence[str]


def measure(name: str, source: Path = ROOT) -> Figures:
    """Run ranklaunch and measure one walk. Raises SystemExit if the walk is not complete."""
    walk, source = WALKS[name], source.resolve()
    for boundary in (walk.begins, walk.ends):
        require(boundary, source)
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder, RECORD)
        words = [sys.executable, str(TOOL), PROBE, name, str(record)]
        if walk.program:
            Path(folder, "train.py").write_text(walk.program, encoding="utf-8")
            words += ["run", "--method", "spawn", "--slots", str(RANKS), "--grace-s", "10"]
            words += ["--log-dir", f"{folder}/logs", "--master-port", str(free_port())]
            words += ["--python", sys.executable, "--", "train.py"]
        else:
            words += ["plan", "--", "train.py"]
        env = {
            "PATH": os.environ.get("PATH", os.defpath),
            "PYTHONPATH": str(source / "src"),
            "HOME": folder,
            "LANG": "C",
            **walk.env,
        }
        output = run(words, folder, env)
        if not record.exists():
            sys.exit(f"{name}: no return of {' or '.join(walk.ends)}; the run wrote:\n{output}")
        return figures(walk.title, json.loads(read(record)))


def run(words: Sequence[str], folder: str, env: Mapping[str, str]) -> str:
    """Return the output of a command. A command that takes longer than LIMIT_S is killed."""
    with subprocess.Popen(
        words,
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        try:
            output, _ = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()  # ranklaunch's other process then ends the ranks
            output, _ = process.communicate()
        return output.decode(errors="replace")


def figures(title: str, record: Mapping[str, Any]) -> Figures:
    modules = [module for _, module in record["calls"]]
    changes = 0
    latest: dict[int, str] = {}
    for thread, module in record["calls"]:
        changes += latest.get(thread, module) != module
        latest[thread] = module
    return Figures(
        title,
        len(modules),
        changes,
        list(dict.fromkeys(modules)),
        modules[-1],
        record["kinds"],
        record["carriers"],
    )


def require(names: Sequence[str], source: Path) -> None:
    """Raise SystemExit if a checkout has none of these functions."""
    if not any(has_function(name, source) for name in names):
        sys.exit(f"{source} has no {' or '.join(names)}: add the new name in WALKS of {TOOL}")


def has_function(name: str, source: Path) -> bool:
    module, _, function = name.partition(":")
    place = source.joinpath("src", PACKAGE, *module.split("."))
    for file in (place.with_suffix(".py"), place / "__init__.py"):
        nodes = ast.walk(ast.parse(read(file))) if file.is_file() else ()
        if any(isinstance(node, FUNCTION) and node.name == function for node in nodes):
            return True
    return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


# The measured process

PROBE = "--probe"
GENERATORS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
MOST_ITEMS = 8  # items of a list whose classes are recorded
LISTS = (list, tuple, set, frozenset)


def probe(name: str, record: str, *words: str) -> None:
    """Run a command of ranklaunch in this process, and record a walk.

    `ranklaunch run` divides the process in two by fork. Both processes keep the recorder; only the
    supervisor reaches the end of the walk.
    """
    sys.argv = [PACKAGE, *words]
    recorder = Recorder(WALKS[name], record)
    threading.setprofile(recorder)
    sys.setprofile(recorder)
    import ranklaunch_start

    ranklaunch_start.script()


class Function(NamedTuple):
    """A code object of the package. resumable: a generator. counts: False for a body of a module or
    class, and for generated methods."""

    name: str
    module: str
    parameters: tuple[str, ...]
    has_receiver: bool
    resumable: bool
    counts: bool


class Recorder:
    """Profile function (sys.setprofile) that writes a walk into a file when the walk ends."""

    def __init__(self, walk: Walk, path: str) -> None:
        self._walk = walk
        self._path = path
        self._functions: dict[int, Function | None] = {}
        self._codes: list[object] = []  # keeps the ids of code objects unique
        self._entries: dict[int, int] = {}  # by generator: the instruction of its first call
        self._begun = False
        self._is_ready = self._is_settled = False
        self._has_sign = False
        self._closing: list[FrameType] = []
        self._returns = 0
        self._clear()

    def _clear(self) -> None:
        self._calls: list[tuple[int, str]] = []
        self._kinds: dict[str, None] = {}
        self._carriers: dict[str, None] = {}

    def __call__(self, frame: FrameType, event: str, value: Any) -> None:
        if event not in ("call", "return"):
            return
        code = frame.f_code
        if id(code) not in self._functions:
            self._codes.append(code)
            self._functions[id(code)] = function_of(frame)
        function = self._functions[id(code)]
        if function is None:
            return
        if event == "call":
            self._on_call(frame, function)
        elif self._begun:
            self._look_at([value], receiver=False)
            if frame in self._closing:
                self._closing.remove(frame)
                self._on_end()

    def _on_call(self, frame: FrameType, function: Function) -> None:
        if function.resumable:
            entry = self._entries.setdefault(id(frame.f_code), frame.f_lasti)
            if frame.f_lasti != entry:
                return
        self._begin(frame, function)
        if not self._begun:
            return
        if function.counts:
            self._calls.append((threading.get_ident(), function.module))
        arguments = [(name, frame.f_locals[name]) for name in function.parameters]
        values = [value for _, value in arguments]
        if function.has_receiver:
            self._look_at(values[:1], receiver=True)
            values = values[1:]
        self._look_at(values, receiver=False)
        self._settle(function, values)
        self._has_sign = self._has_sign or is_sign(self._walk.sign, arguments)
        ends = self._has_sign and function.name in self._walk.ends
        if ends and (not self._walk.ends_with or holds(values, self._walk.ends_with)):
            self._closing.append(frame)

    def _begin(self, frame: FrameType, function: Function) -> None:
        """Begin the walk, again with each event until one brings the sign."""
        if self._has_sign:
            return
        if not self._walk.sign:
            begins = function.name in self._walk.begins
            self._has_sign = begins
        else:
            caller = self._functions.get(id(frame.f_back.f_code)) if frame.f_back else None
            begins = caller is not None and caller.name in self._walk.begins
        if begins:
            self._clear()
            self._begun = True

    def _settle(self, function: Function, values: Sequence[Any]) -> None:
        """Let the rank go on at the first step of the loop after the line READY was read."""
        if self._is_settled or not self._walk.program:
            return
        if self._is_ready and function.name in self._walk.begins:
            self._is_settled = True
            with open(os.path.join(os.path.dirname(self._path), SETTLED), "w", encoding="utf-8"):
                pass
        self._is_ready = self._is_ready or holds(values, READY)

    def _look_at(self, values: Iterable[Any], *, receiver: bool) -> None:
        """Record the classes of values. receiver: the value counts as a carrier only."""
        for value in with_items(values):
            kind = type(value)
            if in_package(kind.__module__) and not isinstance(value, type):
                name = f"{short(kind.__module__)}.{kind.__qualname__}"
                if not receiver:
                    self._kinds[name] = None
                if any(is_status(*pair) for pair in fields(value)):
                    self._carriers[name] = None

    def _on_end(self) -> None:
        self._returns += 1
        if self._returns < self._walk.times:
            return
        threading.setprofile(None)
        sys.setprofile(None)
        calls, kinds, carriers = self._calls, list(self._kinds), list(self._carriers)
        record = {"calls": calls, "kinds": kinds, "carriers": carriers}
        with open(self._path, "w", encoding="utf-8") as file:
            json.dump(record, file)


def function_of(frame: FrameType) -> Function | None:
    """Return the function that a frame runs; None outside the package."""
    code = frame.f_code
    module = frame.f_globals.get("__name__", "")
    if not in_package(module):
        return None
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    parameters = tuple(name for name in code.co_varnames[:count] if not name.startswith("."))
    return Function(
        f"{short(module)}:{code.co_name}",
        short(module),
        parameters,
        has_receiver=parameters[:1] in (("self",), ("cls",)),
        resumable=bool(code.co_flags & GENERATORS),
        counts=bool(code.co_flags & inspect.CO_OPTIMIZED) and not code.co_filename.startswith("<"),
    )


def in_package(module: object) -> bool:
    return isinstance(module, str) and f"{module}.".startswith(f"{PACKAGE}.")


def short(module: str) -> str:
    """Return the name of a module without that of the package."""
    return module.partition(".")[2] or module


def with_items(values: Iterable[Any]) -> Iterator[Any]:
    """Yield the values, and the first items of plain lists, tuples, sets and dicts."""
    for value in values:
        yield value
        if type(value) in LISTS:
            yield from itertools.islice(value, MOST_ITEMS)
        elif type(value) is dict:
            yield from itertools.islice(value.values(), MOST_ITEMS)


def fields(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the fields of an instance by name. No property is called."""
    kind = type(value)
    if isinstance(value, tuple):
        yield from zip(getattr(kind, "_fields", ()), value)
    try:
        yield from list(object.__getattribute__(value, "__dict__").items())
    except AttributeError:  # slots
        pass
    for each in kind.__mro__:
        slots = each.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            try:
                yield name, object.__getattribute__(value, name)
            except AttributeError:  # not set
                pass


def is_status(name: str, value: Any) -> bool:
    """True for the failed rank's exit code or wait status, called code or status."""
    return type(value) is int and value in STATUSES and ("code" in name or "status" in name)


def is_sign(sign: str, arguments: Sequence[tuple[str, Any]]) -> bool:
    if sign == "status":
        return any(is_status(*pair) for pair in arguments)
    return not sign or holds([value for _, value in arguments], LINE)


def holds(values: Iterable[Any], text: str) -> bool:
    """True if one of the values, or of their items, is a str or bytes with `text` inside."""
    for value in with_items(values):
        if isinstance(value, str) and text in value:
            return True
        if isinstance(value, (bytes, bytearray, memoryview)) and text.encode() in bytes(value):
            return True
    return False


# The source

FOLDERS = ("src", "adapters", "entrypoints")
TUNING = ("tune", "tuning", "tune.py", "tuning.py")  # files and folders that do not count
TOKENS_BEFORE = 406_636  # at commit 061b7ef, by the same count
MOST_BRANCHES, FAR_TOO_MANY = 10, 20
VAGUE = ("it", "that", "which", "what", "who", "whose", "those", "others", "told")
VAGUE_NAMES = ("told", "said", "found", "given")
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
COMPREHENSION = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
BRANCH = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.IfExp, ast.ExceptHandler, *COMPREHENSION)
NO_TOKENS = frozenset(
    {
        tokenize.COMMENT,
        tokenize.STRING,
        tokenize.NEWLINE,
        tokenize.NL,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENCODING,
        tokenize.ENDMARKER,
    }
)


@dataclass(frozen=True)
class Shape:
    """Figures of one source, or of several together.

    branches: of each outermost function, by FILE:NAME. words: number of words in docstrings. vague_identifiers: uses of
    names that contain a word of VAGUE_NAMES.
    """

    tokens: int
    branches: Mapping[str, int]
    lambdas: int
    imports_in_functions: int
    words: int
    vague_words: int
    vague_identifiers: int


def shape(source: str, name: str = "") -> Shape:
    tree = ast.parse(source)
    functions = list(outermost(tree))
    words = [word for text in docstrings(tree) for word in re.findall(r"[a-z']+", text.lower())]
    return Shape(
        tokens(source),
        {f"{name}:{each.lineno}:{each.name}": branches(each) for each in functions},
        count(tree, ast.Lambda),
        sum(count(each, (ast.Import, ast.ImportFrom)) for each in functions),
        len(words),
        sum(word in VAGUE for word in words),
        sum(not set(VAGUE_NAMES).isdisjoint(each.lower().split("_")) for each in identifiers(tree)),
    )


def tokens(source: str) -> int:
    """Return the number of names, numbers and operators in a Python source."""
    stream = tokenize.generate_tokens(io.StringIO(source).readline)
    return sum(token.type not in NO_TOKENS for token in stream)


def branches(function: ast.AST) -> int:
    """Return 1 + the number of branches of a function, including functions inside."""
    conditions = (node for node in ast.walk(function) if isinstance(node, ast.BoolOp))
    return 1 + count(function, BRANCH) + sum(len(each.values) - 1 for each in conditions)


def outermost(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield functions and methods, without functions inside functions."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, FUNCTION):
            yield node
        else:
            yield from outermost(node)


def count(tree: ast.AST, kinds: type[ast.AST] | tuple[type[ast.AST], ...]) -> int:
    return sum(isinstance(node, kinds) for node in ast.walk(tree))


def docstrings(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, *FUNCTION)):
            yield ast.get_docstring(node) or ""


def identifiers(tree: ast.AST) -> Iterator[str]:
    """Yield each use of a name: variables, attributes, arguments, functions, classes, imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, (ast.arg, ast.keyword)):
            yield node.arg or ""
        elif isinstance(node, (*FUNCTION, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.alias):
            yield from node.name.split(".")
            yield node.asname or ""


def files(source: Path) -> Iterator[Path]:
    """Yield the Python files of a checkout. A folder reached by a symlink counts once."""
    for folder in FOLDERS:
        for file in sorted((source / folder).rglob("*.py")):
            inside = [each for each in file.parents if source in each.parents]
            parts = file.relative_to(source).parts
            if not any(each.is_symlink() for each in inside) and not set(parts) & set(TUNING):
                yield file


def static(source: Path) -> dict[str, Any]:
    """Return all figures of a checkout's source."""
    shapes = {file: shape(read(file), str(file.relative_to(source))) for file in files(source)}
    rooms: Counter[str] = Counter()
    for file, each in shapes.items():
        rooms[str(file.parent.relative_to(source))] += each.tokens
    whole = shapes.values()
    counted = [item for each in whole for item in each.branches.items()]
    large = sorted((item for item in counted if item[1] > MOST_BRANCHES), key=lambda item: -item[1])
    supervise = source / "src" / PACKAGE / "supervise"
    words = sum(each.words for each in whole)
    vague_words = sum(each.vague_words for each in whole)
    in_supervise = [each.lambdas for file, each in shapes.items() if supervise in file.parents]
    total = sum(rooms.values())
    return {
        "tokens": total,
        "tokens_share": round(total / TOKENS_BEFORE, 4),  # of those at commit 061b7ef
        "tokens_by_room": dict(rooms.most_common()),
        "functions": len(counted),
        "functions_over_10": dict(large),
        "functions_over_10_share": round(len(large) / len(counted), 4),
        "functions_over_20": sum(number > FAR_TOO_MANY for _, number in large),
        "lambdas": sum(each.lambdas for each in whole),
        "lambdas_in_supervise": sum(in_supervise),
        "imports_in_functions": sum(each.imports_in_functions for each in whole),
        "docstring_words": words,
        "vague_words": vague_words,
        "vague_words_share": round(vague_words / words, 4),
        "vague_identifiers": sum(each.vague_identifiers for each in whole),
    }


def read(file: Path) -> str:
    return file.read_text(encoding="utf-8")


# The command line


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("places", nargs="*", type=Path, help="files, folders: count their tokens")
    parser.add_argument("--source", type=Path, default=ROOT, help="a checkout; default: this one")
    parser.add_argument("--static", action="store_true", help="no walks")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("-v", "--verbose", action="store_true", help="name all things counted")
    options = parser.parse_args()
    if options.places:
        counts = tokens_of(options.places)
        print(json.dumps(counts, indent=1) if options.json else "\n".join(token_lines(counts)))
        return
    source = options.source.resolve()
    walks = {} if options.static else {name: measure(name, source) for name in WALKS}
    shape_of_all = static(source)
    if options.json:
        walked = {name: asdict(each) for name, each in walks.items()}
        print(json.dumps({"walks": walked, "source": shape_of_all}, indent=1))
    else:
        lines = (*walk_lines(walks, options.verbose), *source_lines(shape_of_all, options.verbose))
        print("\n".join(lines))


def tokens_of(places: Iterable[Path]) -> dict[str, int]:
    """Return the tokens of each file in these places."""
    each_file = (file for place in places for file in (sorted(place.rglob("*.py")) or [place]))
    return {str(file): tokens(read(file)) for file in each_file}


def token_lines(counts: Mapping[str, int]) -> Iterator[str]:
    yield from (f"{number:9,} {name}" for name, number in counts.items())
    yield f"{sum(counts.values()):9,} all"


def walk_lines(walks: Mapping[str, Figures], verbose: bool) -> Iterator[str]:
    if not walks:
        return
    yield f"{'walk':32}{'modules':>9}{'changes of module':>19}{'kinds of values':>17}"
    for each in walks.values():
        yield f"{each.title:32}{len(each.modules):9}{each.changes:19}{len(each.kinds):17}"
    carriers = walks["verdict"].carriers
    yield f"kinds of values that hold the exit status: {len(carriers)}: {', '.join(carriers)}"
    for each in walks.values() if verbose else ():
        yield f"\n{each.title}: {each.calls:,} calls\n  modules: {', '.join(each.modules)}"
        yield f"  kinds of values: {', '.join(each.kinds)}"
    yield ""


def source_lines(all_figures: Mapping[str, Any], verbose: bool) -> Iterator[str]:
    number = {name: f"{value:9,}" for name, value in all_figures.items() if type(value) is int}
    share = {name: f"{value:.2%}" for name, value in all_figures.items() if type(value) is float}
    large = all_figures["functions_over_10"]
    yield f"{number['tokens']} tokens, {share['tokens_share']} of {TOKENS_BEFORE:,}"
    for room, count_of_room in all_figures["tokens_by_room"].items():
        yield f"{count_of_room:9,}   {room}"
    yield f"{number['functions']} functions"
    yield f"{len(large):9,}   over 10 branches, {share['functions_over_10_share']}"
    yield f"{number['functions_over_20']}   over 20 branches"
    yield from (f"{branch_count:9}   {name}" for name, branch_count in large.items() if verbose)
    yield f"{number['lambdas']} lambdas, {all_figures['lambdas_in_supervise']} of them in supervise"
    yield f"{number['imports_in_functions']} imports inside functions"
    words = f"vague words in docstrings ({', '.join(VAGUE)})"
    yield f"{number['vague_words']} {words}, {share['vague_words_share']}"
    yield f"{number['vague_identifiers']} uses of names with {', '.join(VAGUE_NAMES)}"


if __name__ == "__main__":
    if sys.argv[1:2] == [PROBE]:
        probe(*sys.argv[2:])
    else:
        main()
