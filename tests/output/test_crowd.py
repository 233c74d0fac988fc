"""A console with very many ranks: some of them, equal lines once, a budget. In memory, with a clock that a test sets."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import helpers
import pytest

from ranklaunch import spans
from ranklaunch.errors import ConfigError
from ranklaunch.output import dedupe
from ranklaunch.output.console import OF_RANKS, Terminal, colourful
from ranklaunch.output.console_filter import Crowd
from ranklaunch.output.dedupe import MOST_S, QUIET_S, Alike
from ranklaunch.output.logs import Logs
from ranklaunch.output.pipe import Output
from ranklaunch.plan.model import Console, as_json
from ranklaunch.plan.show import as_text
from ranklaunch.supervise.record import Record
from ranklaunch.system.loop import Loop
from testbench.judges import formats


class Shown:
    """The console of a node with so many ranks, and a launcher."""

    def __init__(self, console: Console, ranks: int = 4) -> None:
        self.now = 0.0
        self.said: list[str] = []
        self.data = b""
        self.loop = Loop(lambda: self.now)
        plan = replace(helpers.plan({"PATH": "/usr/bin", "RANKLAUNCH_SLOTS": str(ranks)}, method="spawn"), console=console)
        self.crowd = Crowd(plan, self._show, self.loop, self.said.append, lambda tag, rank: tag)
        self.outputs = [self._output(rank, f"[rank {rank}] ") for rank in range(ranks)]
        self.launcher = self._output(None, "[torchrun] ")

    def wait(self, seconds: float) -> None:
        """In steps of timers."""
        end = self.now + seconds
        while self.now < end:
            self.now += 0.05
            self.loop.step(0)

    @property
    def lines(self) -> list[str]:
        self.crowd.finish()
        return self.data.decode().splitlines()

    def _output(self, rank: int | None, tag: str) -> Output:
        show, aloud = self.crowd.of(rank, tag)
        return Output((), "", show, lambda: self.now, self.said.append, aloud=aloud)

    def _show(self, *lines: bytes) -> None:
        self.data += b"".join(lines)


def of_ranks(lines: list[str]) -> dict[int, list[bytes]]:
    """What each has written, by the tags."""
    written: dict[int, list[bytes]] = {rank: [] for rank in range(64)}
    for line in lines:
        found = re.match(r"\[ranks? ([0-9,-]+)\] ", line)
        assert found, line
        for first, last in spans.parse(found[1]).of:
            for rank in range(first, last + 1):
                written[rank].append(line[found.end() :].encode())
    return written


# Some of them


def test_ranks_that_are_chosen_and_what_is_no_rank() -> None:
    shown = Shown(Console(ranks="0,2-3"))
    for rank, output in enumerate(shown.outputs):
        output.feed(b"%d\nsecond\n" % rank)
    shown.launcher.feed(b"launcher\n")
    assert shown.lines == ["[rank 0] 0", "[rank 0] second", "[rank 2] 2", "[rank 2] second", "[rank 3] 3", "[rank 3] second",
                           "[torchrun] launcher"]  # fmt: skip


# Equal lines


def test_equal_lines_of_many_ranks_are_one() -> None:
    """64 ranks, each with 1,000 lines that are the same and some of its own, in blocks that come in any order."""
    chance = random.Random(3)
    own = {rank: [b"own %d %d" % (rank, i) for i in range(3)] for rank in range(64)}
    texts = {rank: [b"warning %d" % i for i in range(1000)] for rank in range(64)}
    for rank, lines in texts.items():
        for i, line in enumerate(own[rank]):
            lines.insert(300 * i + rank, line)
    shown = Shown(Console(merge=True), 64)
    left = {rank: b"\n".join(lines) + b"\n" for rank, lines in texts.items()}
    while left:
        rank = chance.choice(sorted(left))
        size = chance.randrange(1, 8000)
        shown.outputs[rank].feed(left[rank][:size])
        shown.now += 0.001
        shown.loop.step(0)
        left[rank] = left[rank][size:]
        if not left[rank]:
            del left[rank]
    found = shown.lines
    assert len(found) == 1000 + 64 * 3
    assert of_ranks(found) == texts  # each line once, in the order of its rank


def test_lines_that_a_rank_repeats_are_as_many() -> None:
    shown = Shown(Console(merge=True), 2)
    shown.outputs[0].feed(b"same\nsame\nother\nsame\n")
    shown.outputs[1].feed(b"same\nother\nsame\nsame\n")
    assert shown.lines == ["[ranks 0-1] same", "[rank 0] same", "[ranks 0-1] other", "[ranks 0-1] same", "[rank 1] same"]


def test_lines_do_not_wait_long() -> None:
    shown = Shown(Console(merge=True), 3)
    shown.outputs[0].feed(b"alone\n")
    shown.outputs[0].feed(b"all\n")
    shown.wait(QUIET_S / 2)
    assert shown.data == b""
    shown.wait(QUIET_S)
    assert shown.data == b"[rank 0] alone\n[rank 0] all\n"
    for output in shown.outputs:
        output.feed(b"now\n")
    assert shown.data.endswith(b"[ranks 0-2] now\n")  # no rank is missing: at once
    shown.launcher.feed(b"FAILED\n")
    assert shown.data.endswith(b"[torchrun] FAILED\n")


def test_those_who_come_one_after_the_other_are_waited_for_until_a_limit() -> None:
    found = Alike(1000)
    for rank in range(999):
        found.add(rank, [b"line"], rank * QUIET_S * 0.9)
        gone = list(found.due(rank * QUIET_S * 0.9))
        if gone:
            break
    assert [len(group.ranks) for group in gone] == [rank + 1]
    assert rank * QUIET_S * 0.9 >= MOST_S
    assert not found.waits


def test_memory_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dedupe, "MOST_COST", 100_000)
    shown = Shown(Console(merge=True), 2)
    for i in range(2000):
        shown.outputs[0].feed(b"%d\n" % i)
    assert 2000 - 100_000 // dedupe.OF_LINE - 1 <= shown.data.count(b"\n") < 2000
    assert shown.lines == [f"[rank 0] {i}" for i in range(2000)]


def test_what_has_been_shown_leaves_nothing_behind() -> None:
    found = Alike(2)
    for turn in range(50):
        found.add(0, [b"a", b"b", b"a"], turn)
        found.add(1, [b"b", b"a"], turn)
        list(found.all())
    found.alone(-1, b"x", 50)
    list(found.all())
    assert (found._cost, found._groups, found._order, found._equal) == (0, {}, [], {})
    assert not any(rank.own for rank in found._of.values())


# The budget


TRACEBACK = b'Traceback (most recent call last):\n  File "x.py", line 1, in <module>\n    boom()\nMyProblem: it is over\nafter\n'


def test_a_budget_leaves_rank_0_and_what_is_wrong() -> None:
    shown = Shown(Console(most=60))
    for _ in range(3):
        for output in shown.outputs[:2]:
            output.feed(b"step\n")
    shown.outputs[1].feed(b"fine\nUserWarning: odd\nfine\n")
    shown.outputs[2].feed(TRACEBACK)
    shown.outputs[0].feed(b"last step\n")
    assert shown.lines == [
        *["[rank 0] step", "[rank 1] step"] * 2, "[rank 0] step",  # 60 bytes would be passed here, which rank 0 may
        "[rank 1] UserWarning: odd", *(f"[rank 2] {line}" for line in TRACEBACK.decode().splitlines()[:-1]), "[rank 0] last step",
    ]  # fmt: skip
    assert [text for text in shown.said if "RANKLAUNCH_CONSOLE_MAX" in text] == shown.said[:1]
    assert "60 bytes" in shown.said[0]


def test_a_budget_of_merged_lines() -> None:
    shown = Shown(Console(merge=True, most=30))
    for output in shown.outputs:
        output.feed(b"one\ntwo\n")
    for output in shown.outputs[1:]:
        output.feed(b"three\nan Error\n")
    assert shown.lines == ["[ranks 0-3] one", "[ranks 0-3] two", "[ranks 1-3] an Error"]


# As it is asked for


def plan(env: Mapping[str, str]) -> Console | None:
    return helpers.plan({"PATH": "/usr/bin", "RANKLAUNCH_SLOTS": "4", **env}, method="spawn").console


def test_a_plan_says_what_was_asked_for() -> None:
    asked = {"RANKLAUNCH_CONSOLE": " 0, 2-3", "RANKLAUNCH_CONSOLE_MERGE": "on", "RANKLAUNCH_CONSOLE_MAX": "1.5M"}
    with pytest.raises(ConfigError, match=r"1\.5M.*expected bytes"):
        plan(asked)
    made = helpers.plan({"PATH": "/usr/bin", "RANKLAUNCH_SLOTS": "4", **asked, "RANKLAUNCH_CONSOLE_MAX": "2 MiB"}, method="spawn")
    assert made.console == Console("0,2-3", True, 2 << 20)
    formats.check("plan", as_json(made))
    assert as_json(made)["console"] == {"ranks": "0,2-3", "merge": True, "most": 2 << 20, "victims": "fold"}
    assert "console   ranks 0,2-3, equal lines once, at most 2097152 bytes" in as_text(made)
    assert plan({"RANKLAUNCH_CONSOLE": "all", "RANKLAUNCH_CONSOLE_MERGE": "off", "RANKLAUNCH_CONSOLE_MAX": "0"}) is None
    assert plan({"RANKLAUNCH_CONSOLE_VICTIMS": "fold"}) is None
    assert plan({"RANKLAUNCH_CONSOLE_VICTIMS": "all"}) == Console(victims="all")
    with pytest.raises(ConfigError, match=r"RANKLAUNCH_CONSOLE='some'.*numbers from 0.*or all"):
        plan({"RANKLAUNCH_CONSOLE": "some"})
    assert any("no such rank" in text for text in helpers.plan({"PATH": "/usr/bin", "RANKLAUNCH_CONSOLE": "9"}, method="spawn").warnings)


class Consoles(Terminal):
    """stdout is kept, stderr is not opened."""

    def __init__(self) -> None:
        self.data = b""
        self.out = self  # type: ignore[assignment]
        self._paints = False

    pending, full, lost = 0, False, 0

    def write(self, *pieces: bytes) -> None:
        self.data += b"".join(pieces)


def test_what_is_left_out_or_put_together_is_in_the_files(tmp_path: Path) -> None:
    env = {"PATH": "/usr/bin", "RANKLAUNCH_SLOTS": "3", "RANKLAUNCH_LOG_DIR": str(tmp_path)}
    plan = helpers.plan({**env, "RANKLAUNCH_CONSOLE": "0-1", "RANKLAUNCH_CONSOLE_MERGE": "on"}, method="spawn")
    terminal, loop = Consoles(), Loop()
    logs = Logs(loop, Record(str(tmp_path / "attempt_1")), terminal, plan, loop.wall)
    for process in plan.processes:
        logs.sink(process, None).feed(b"same\nrank %d\n" % process.rank)
    logs.finish()
    assert terminal.data == b"[ranks 0-1] same\n[rank 0] rank 0\n[rank 1] rank 1\n"
    assert (tmp_path / "attempt_1" / "rank_2.log").read_bytes() == b"same\nrank 2\n"
    assert "2 12 " in (tmp_path / "attempt_1" / "times_0").read_text()


# Colours


@helpers.for_each(
    {
        "wanted": ({"TERM": "xterm"}, True), "not by NO_COLOR": ({"TERM": "xterm", "NO_COLOR": "1"}, False),
        "empty NO_COLOR": ({"TERM": "xterm", "NO_COLOR": ""}, True), "dumb": ({"TERM": "dumb"}, False), "none": ({}, False),
    }
)  # fmt: skip
def test_colours(env: Mapping[str, str], wanted: bool) -> None:
    assert colourful(env) == wanted


def test_colours_of_our_own_lines_and_of_tags(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.isatty", lambda fd: True)
    terminal = Terminal(Loop(), {"TERM": "xterm"})
    written: list[bytes] = []
    monkeypatch.setattr(terminal._own, "write", written.append)
    terminal.say("failed with exit code 1: \x1b[2J\nsecond", [b"quoted"])
    assert written == [b"\x1b[1;31mranklaunch: failed with exit code 1: \\x1b[2J\x1b[0m\nsecond\n  quoted\n"]
    assert terminal.painted("[rank 1] ", 1) == f"\x1b[{OF_RANKS[1]}m[rank 1] \x1b[0m"
    assert terminal.painted("", 1) == ""
    monkeypatch.setattr("os.isatty", lambda fd: False)
    assert Terminal(Loop(), {"TERM": "xterm"}).painted("[rank 1] ", 1) == "[rank 1] "
