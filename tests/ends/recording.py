"""Records jobs of other tests as values, while RECORD_ENDS names a folder: a JSON file for each test, with every ends.json that it left and
the verdict beside it, and with every call of judge.suspects in the test's own process. cases.py makes cases of these files."""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ranklaunch.ends import collect
from ranklaunch.ends.model import as_json
from ranklaunch.supervise import ending as ending_of_node
from ranklaunch.supervise import judge
from ranklaunch.system import tree
from ranklaunch.verdict import messages

FOLDER = os.environ.get("RECORD_ENDS", "")
VERDICTS = ("round.json", "verdict.json")  # of a round that another follows, and of the last


class Recorder:
    """A plugin of pytest."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._calls: list[dict[str, Any]] = []
        self._failed = False  # the test: its job may be judged by a machine that was too busy

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        self._calls = []
        original = judge.suspects
        judge.suspects = self._recorded  # type: ignore[assignment]
        self._original = original
        outcome: Any = yield
        self._failed = outcome.excinfo is not None
        judge.suspects = original

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        """Before fixtures remove what jobs left."""
        folder = getattr(item, "funcargs", {}).get("tmp_path")
        found = [*self._calls, *(_files(folder) if folder else ())]
        if found and not self._failed:
            name = hashlib.sha256(item.nodeid.encode()).hexdigest()[:16]
            self._folder.mkdir(parents=True, exist_ok=True)
            text = _of_no_machine(json.dumps({"test": item.nodeid, "found": found}), folder, item.config.rootpath)
            (self._folder / f"{name}.json").write_text(text)

    def _recorded(self, plan: Any, ending: Any, ended: Any, circumstances: Any) -> Any:
        found = self._original(plan, ending, ended, circumstances)
        for child in ended:
            _complete(child)
        ends = as_json(collect.of_node(plan, ending, ended, circumstances))
        for end in ends["ends"]:
            if end["launcher"]:
                end["launcher"]["own_pid"] = 0  # these tests look at no pid
        judged = ending_of_node.judgement(ending, found, (), (), circumstances)
        pid, start = tree.identify(os.getpid())  # such tests take their own process for a child
        text = re.sub(rf"(?<=: )(?:{pid}|{start})(?=[,}}])", "4711", json.dumps(ends))
        self._calls.append({"ends": json.loads(text), "verdict": messages.as_message(judged), "call": True})
        return found


def _of_no_machine(text: str, folder: Path | None, root: Path) -> str:
    """Without the folders and the name of this machine."""
    for own, other in ((str(folder or ""), "/job"), (str(root), "/ranklaunch"), (sys.prefix, "/venv"), (sys.base_prefix, "/venv")):
        text = text.replace(own, other) if own else text
    text = re.sub(r"(?:/[\w.-]+)+?/\.venv(?=/)|(?:/[\w.-]+)+?(?=/(?:lib/python3|bin/python))", "/venv", text)
    return re.sub(rf"\b{re.escape(socket.gethostname())}\b", "this-host", text)


def _complete(child: Any) -> None:
    """What tests that stand in for processes leave out."""
    if child.told_at is not None and not child.sent_at:
        child.sent_at = [child.told_at] * len(child.ended.told)
    for ranks in child.watched:
        _add(ranks, expected=(), alive=())
        for rank in ranks.ended:
            rank.ended = True
            _add(rank, identity=(0, 0), name="", status=None, ended_at=0.0, surely=False)


def _add(value: Any, **usual: object) -> None:
    for name, each in usual.items():
        if not hasattr(value, name):
            setattr(value, name, each)


def _files(folder: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.rglob("ends.json")):
        beside = next((path.parent / name for name in VERDICTS if (path.parent / name).is_file()), None)
        if path.is_file() and beside:
            verdict = json.loads(beside.read_text())
            yield {"path": str(path.relative_to(folder)), "ends": json.loads(path.read_text()), "verdict": verdict, "of": beside.name}


def register(config: pytest.Config) -> None:
    if FOLDER:
        config.pluginmanager.register(Recorder(Path(FOLDER)))
