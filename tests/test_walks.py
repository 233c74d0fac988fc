"""tools/walks.py: figures of small sources, a recorded walk, and one real run of each walk."""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import helpers
import pytest

from testbench import places

SMALL = '''
"""It tells others what it does."""
import os.path as found  # a comment

given_twice = lambda told: told


class Said:
    def told_off(self, text="no"):
        """Return the text."""
        import json
        def inside(value):
            from json import loads
            return 1 if value else 2
        return [inside(each) for each in text if each and text or json]


async def fails():
    for each in ():
        try:
            pass
        except ValueError:
            pass
'''


@pytest.fixture
def walks() -> ModuleType:
    return places.module("tools/walks.py")


def test_tokens_are_names_numbers_and_operators(walks: ModuleType) -> None:
    assert walks.tokens('"""Docs."""\nif a:  # why\n    b = "text" + 1\n') == 3 + 4


@pytest.mark.parametrize(
    ("body", "branches"),
    [
        ("pass", 1),
        ("if a: pass\n elif b: pass\n else: pass", 3),
        ("for a in b:\n  while c: pass", 3),
        ("return a if b else c", 2),
        ("return a and b and c or d", 4),
        ("try: pass\n except A: pass\n except B: pass\n finally: pass", 3),
        ("return [a for a in b if c], {a: a for a in b}, (a for a in b)", 4),
        ("def inside():\n  return a or b\n return lambda: a and b", 3),
    ],
)
def test_branches(walks: ModuleType, body: str, branches: int) -> None:
    made = walks.shape(f"def function():\n {body}\n", "file.py")
    assert made.branches == {"file.py:1:function": branches}


def test_figures_of_a_source(walks: ModuleType) -> None:
    made = walks.shape(SMALL, "small.py")
    assert made.branches == {"small.py:9:told_off": 5, "small.py:18:fails": 3}
    assert (made.lambdas, made.imports_in_functions) == (1, 2)
    assert (made.words, made.vague_words) == (9, 4)
    # found, given_twice, the parameter told and its use, Said, told_off
    assert made.vague_identifiers == 6


def test_figures_of_a_checkout(walks: ModuleType, tmp_path: Path) -> None:
    """Tuning does not count; a linked folder counts once."""
    package = tmp_path / "src" / "ranklaunch"
    texts = {
        package / "one.py": SMALL,
        package / "supervise" / "two.py": "def a():\n return lambda: 1\n",
        package / "tune" / "space.py": "a = 1\n",
        package / "read" / "tuning.py": "a = 1\n",
        tmp_path / "adapters" / "three.py": "a = 1\n",
        tmp_path / "entrypoints" / "tune.py": "a = 1\n",
        tmp_path / "tests" / "four.py": "a = 1\n",
    }
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (package / "adapters").symlink_to(tmp_path / "adapters")
    made = walks.static(tmp_path)
    rooms = {"src/ranklaunch": walks.tokens(SMALL), "src/ranklaunch/supervise": 9, "adapters": 3}
    assert made["tokens_by_room"] == rooms
    assert made["tokens"] == sum(rooms.values())
    assert (made["functions"], made["functions_over_10"]) == (3, {})
    assert (made["lambdas"], made["lambdas_in_supervise"]) == (2, 1)
    lines = "\n".join(walks.source_lines(made, verbose=True))
    assert "2 lambdas, 1 of them in supervise" in lines
    assert walks.tokens_of([tmp_path / "adapters"]) == {f"{tmp_path}/adapters/three.py": 3}


def test_this_checkout_has_the_functions_at_which_walks_begin_and_end(walks: ModuleType) -> None:
    for walk in walks.WALKS.values():
        walks.require(walk.begins, helpers.ROOT)
        walks.require(walk.ends, helpers.ROOT)
    with pytest.raises(SystemExit, match=r"has no plan\.model:gone: add the new name in WALKS"):
        walks.require(("plan.model:gone",), helpers.ROOT)


ENDS = """
class End:
    def __init__(self, code):
        self.exit_code = code

    def __bool__(self):
        return True

def end(code):
    return End(code)
"""
LOOP = """
def numbers():
    yield 1
    yield 2

def step(callback):
    callback()

def before():
    pass

def reap(status):
    list(numbers())
    each = end(status >> 8)
    return bool(each) and (lambda: [each])()

def write(name):
    class Body:
        pass
"""


def test_a_walk_has_the_calls_from_its_event_to_its_end(walks: ModuleType, tmp_path: Path) -> None:
    modules: dict[str, dict[str, Any]] = {}
    for name, text in (("ends", ENDS), ("loop", LOOP)):
        modules[name] = {"__name__": f"ranklaunch.{name}"}
        exec(compile(text, f"{name}.py", "exec"), modules[name])
    ends, loop = modules["ends"], modules["loop"]
    loop["end"] = ends["end"]
    walk = walks.Walk(
        "a walk",
        begins=("loop:step",),
        ends=("loop:write",),
        ends_with="verdict",
        sign="status",
    )

    def job() -> None:
        loop["step"](loop["before"])
        loop["step"](functools.partial(loop["reap"], walks.CODE << 8))
        loop["write"]("other.json")
        loop["write"]("verdict.json")
        loop["before"]()

    path = tmp_path / "walk.json"
    sys.setprofile(walks.Recorder(walk, str(path)))
    try:
        job()
    finally:
        sys.setprofile(None)
    made = walks.figures("a walk", json.loads(path.read_text()))
    # reap, numbers once, end, End, its truth, the lambda, write twice
    modules_of_calls = ["loop", "loop", "ends", "ends", "ends", "loop", "loop", "loop"]
    assert (made.calls, made.changes) == (len(modules_of_calls), 2)
    assert (made.modules, made.last) == (["loop", "ends"], "loop")
    assert (made.kinds, made.carriers) == (["ends.End"], ["ends.End"])


def test_changes_of_module_count_by_thread(walks: ModuleType) -> None:
    calls = [(1, "a"), (2, "b"), (1, "a"), (2, "b"), (1, "b")]
    made = walks.figures("a walk", {"calls": calls, "kinds": [], "carriers": []})
    assert (made.changes, made.modules) == (1, ["a", "b"])


# By walk: modules in the order in which the walk first comes to them.
ORDER = {
    "plan": ["plan.planning", "adapters.platforms.modelarts", "adapters.launchers.torchrun"],
    "verdict": ["processes.children", "supervise.attempt", "diagnose.suspects", "verdict.blame"],
    "line": ["output.pipe", "output.logs", "output.console"],
    "round": ["processes.children", "verdict.blame", "restarts.decision", "plan.planning"],
}
LAST = {"verdict": "system.disk", "line": "output.console"}


@pytest.mark.processes
@pytest.mark.parametrize("name", ORDER)
def test_a_real_walk(walks: ModuleType, name: str) -> None:
    made = walks.measure(name)
    order = ORDER[name]
    assert made.modules[0] == order[0]
    assert [module for module in made.modules if module in order] == order
    assert LAST.get(name, made.last) == made.last
    assert len(made.modules) > 3
    assert made.changes >= len(made.modules) - 1
    assert bool(made.carriers) == (name in ("verdict", "round"))
    if name == "verdict":
        kinds = [carrier.rpartition(".")[2] for carrier in made.carriers]
        assert (kinds[0], kinds[-1]) == ("End", "Suspect")  # the verdict holds a judgement, without fields of its own
        assert "Judgement" in kinds
    assert made.title in "\n".join(walks.walk_lines({"verdict": made}, verbose=True))
