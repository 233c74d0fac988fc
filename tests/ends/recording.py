"""Records jobs of other tests as values, while RECORD_ENDS names a folder: a JSON file for each test, with every ends.json that it left and
the verdict beside it, and with every call of judge.suspects in the test's own process. tools of tests/ends/cases.py make cases of them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ranklaunch.ends.model import as_json
from ranklaunch.supervise import judge
from ranklaunch.supervise.ends import collect
from ranklaunch.verdict import blame

FOLDER = os.environ.get("RECORD_ENDS", "")
VERDICTS = ("round.json", "verdict.json")  # of a round that another follows, and of the last


class Recorder:
    """A plugin of pytest."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._calls: list[dict[str, Any]] = []

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        self._calls = []
        original = judge.suspects
        judge.suspects = self._recorded  # type: ignore[assignment]
        self._original = original
        yield
        judge.suspects = original

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        """Before fixtures remove what jobs left."""
        folder = getattr(item, "funcargs", {}).get("tmp_path")
        found = [*self._calls, *(_files(folder) if folder else ())]
        if found:
            name = hashlib.sha256(item.nodeid.encode()).hexdigest()[:16]
            self._folder.mkdir(parents=True, exist_ok=True)
            (self._folder / f"{name}.json").write_text(json.dumps({"test": item.nodeid, "folder": str(folder or ""), "found": found}))

    def _recorded(self, plan: Any, ending: Any, ended: Any, circumstances: Any) -> Any:
        found = self._original(plan, ending, ended, circumstances)
        for child in ended:
            for ranks in (child.announced, child.below):
                _complete(ranks)
        ends = as_json(collect.of_node(plan, ending, ended, circumstances))
        judged = judge.judgement(ending, found, (), (), circumstances)
        self._calls.append({"ends": ends, "verdict": blame.as_message(judged), "call": True})
        return found


def _complete(ranks: Any) -> None:
    """What tests that stand in for ranks leave out."""
    for name, value in {"expected": (), "alive": (), "ended": ()}.items():
        if ranks is not None and not hasattr(ranks, name):
            setattr(ranks, name, value)
    for rank in ranks.ended if ranks else ():
        for name, value in {"identity": (0, 0), "name": "", "status": None, "ended": True, "ended_at": 0.0, "surely": False}.items():
            if not hasattr(rank, name):
                setattr(rank, name, value)


def _files(folder: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.rglob("ends.json")):
        beside = next((path.parent / name for name in VERDICTS if (path.parent / name).is_file()), None)
        if path.is_file() and beside:
            verdict = json.loads(beside.read_text())
            yield {"path": str(path.relative_to(folder)), "ends": json.loads(path.read_text()), "verdict": verdict, "of": beside.name}


def register(config: pytest.Config) -> None:
    if FOLDER:
        config.pluginmanager.register(Recorder(Path(FOLDER)))
