"""Real jobs of every method that hang, with default settings but for the times: each alarm comes, and the right rank is named by its stack.
The table itself is in default_hang_cases.py."""

from __future__ import annotations

import itertools
import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import helpers
import pytest
from default_hang_cases import CELLS, FIRST_STEP_S, HANG_S, HEALTHY, TYPICAL, Cell

from testbench.hosts import Host, Hosts
from testbench.jobs.on_hosts import LONG_S, LauncherJob
from testbench.places import child
from testbench.waiting import sleep_until

ALARM = "the job hangs: "
SAID = Path(os.environ.get("RANKLAUNCH_HANG_TABLE", os.devnull))  # a line of JSON for each run, of which the table is made
TIMES = {"RANKLAUNCH_HANG_S": str(HANG_S), "RANKLAUNCH_FIRST_STEP_S": str(FIRST_STEP_S)}
MORE = {"deepspeed": "launchers", "accelerate": "launchers", "mpirun": "launchers", "msrun": "launchers", "tensorflow": "launchers"}
# With the real limits, that of jobs that print nothing among them: half an hour.
DEFAULTS = (Cell("spawn", 1, 2, "one", "socket"), Cell("torchrun", 2, 1, "many", "lock"), Cell("spawn", 2, 1, "before", "busy loop"))
OWN_TABLE = ("sh", "-c", 'RANK_TABLE_FILE="$PWD/table.json" exec "$@"', "sh")


def marked(cell: Cell) -> Any:
    marks = [
        *([] if str(cell) in TYPICAL else [pytest.mark.table]),
        *([pytest.mark.training] if cell.method in ("torchrun", "megatron") else []),
        *([pytest.mark.launchers] if cell.method in MORE else []),
    ]
    return pytest.param(cell, id=str(cell), marks=marks)


class StuckJob(LauncherJob):
    """A job of one cell on hosts of its own."""

    def __init__(self, hosts: Hosts, folder: Path, cell: Cell) -> None:
        super().__init__(hosts, folder, cell.method, cell.slots)
        self._cell = cell

    def run(self, env: Mapping[str, str]) -> None:
        cell, prefix = self._cell, ()
        if cell.method == "ranktable":
            servers = [(host.address, [(str(i), str(host.index * cell.slots + i)) for i in range(cell.slots)]) for host in self._hosts]
            (self.folder / "table.json").write_text(helpers.server_table(servers))
            prefix = OWN_TABLE
        (self.folder / "run").mkdir()
        given = {
            "MOMENT": cell.moment, "PLACE": cell.place, "WHO": str(cell.stuck), "BACKEND": cell.backend, "STAR": self._hosts[0].address,
            "RANKLAUNCH_RUN_DIR": str(self.folder / "run"),
        }  # fmt: skip
        self.start(child("stuck.py"), env={**given, **env}, prefix=prefix)

    def _environment(self, host: Host) -> dict[str, str]:
        if self._cell.method != "tensorflow":
            return super()._environment(host)
        workers = ",".join(f"{each.name}:6234" for each in self._hosts)
        return {**super()._environment(host), "RANKLAUNCH_WORKER_HOSTS": workers, "RANKLAUNCH_TASK": "worker"}

    @property
    def over(self) -> bool:
        return all(node.popen.poll() is not None for node in self.nodes)

    def hang(self) -> dict[str, Any] | None:
        """The alarm, once the stacks have decided; None without one."""
        sleep_until(lambda: ALARM in self.nodes[0].err or self.over, self.words, LONG_S)
        if ALARM not in self.nodes[0].err:
            return None
        sleep_until(lambda: self.over or all(map(self._has_concluded, range(len(self.nodes)))), self.words, LONG_S)
        for node in self.nodes:
            if node.popen.poll() is None:
                node.popen.send_signal(signal.SIGTERM)
        codes = [node.popen.wait(LONG_S) for node in self.nodes]
        assert {*codes} <= {0, 143}, self.words()  # 0: the ranks of a node had ended, and the others hung at their exit
        assert not any(node.host.pids() for node in self.nodes), self.words()
        found = self.nodes[self._cell.stuck // self._cell.slots].verdict.get("hang")
        return dict(found) if found else {"suspects": []}

    def _has_concluded(self, node: int) -> bool:
        """True if the node has evidence, and has heard what node 0 makes of it."""
        lines = [json.loads(line) for line in self.nodes[node].log("events.jsonl").splitlines() if line.endswith("}")]
        alarms = [line["text"] for line in lines if line["event"] == "hang" and line["text"].startswith(ALARM)]
        return any(line["event"] == "evidence" for line in lines) and any("); " in text for text in alarms)


def note(cell: Cell, hang: dict[str, Any] | None) -> None:
    """For the table."""
    named = [each["rank"] for each in hang["suspects"]] if hang else None
    rule = hang["suspects"][0]["rule"] if hang and hang["suspects"] else ""
    line = {"default": str(cell), "seen": hang is not None, "named": named, "names": cell.names, "rule": rule}
    with SAID.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


@pytest.mark.parametrize("cell", [marked(cell) for cell in CELLS])
def test_a_hang_is_seen_and_named(cell: Cell, hosts: Callable[..., Hosts], tmp_path: Path) -> None:
    job = StuckJob(hosts(cell.nodes), tmp_path, cell)
    job.run(TIMES)
    hang = job.hang()
    note(cell, hang)
    assert hang is not None, job.words()
    if cell.names is not None:
        assert tuple(each["rank"] for each in hang["suspects"]) == cell.names, (hang, job.words())


CHECKED = ("compiles_after_a_line", "one_rank_saves", "one_rank_ends_before")  # by CI


@pytest.mark.parametrize("shape", [pytest.param(each, marks=[] if each in CHECKED else [pytest.mark.table]) for each in HEALTHY])
def test_a_healthy_job_raises_no_alarm(shape: str, hosts: Callable[..., Hosts], tmp_path: Path) -> None:
    job = LauncherJob(hosts(2), tmp_path, "spawn", 1)
    (tmp_path / "run").mkdir()
    expect = {"RANKLAUNCH_EXPECT": "step every 60s"} if shape == "knows_better" else {}
    given = {"SHAPE": shape, "LONG": str(2.4 * HANG_S), "STAR": "h0", "RANKLAUNCH_RUN_DIR": str(tmp_path / "run")}
    job.start(child("lives.py"), env={**given, **TIMES, **expect})
    job.end(0)
    seen = ALARM in job.nodes[0].err
    with SAID.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"healthy": shape, "seen": seen}) + "\n")
    assert not seen, job.words()


@pytest.mark.table
@pytest.mark.training
@pytest.mark.parametrize("cell", [pytest.param(cell, id=str(cell)) for cell in DEFAULTS])
def test_the_limits_of_every_job(cell: Cell, hosts: Callable[..., Hosts], tmp_path: Path) -> None:
    """After 300 s, or 1800 s for a job that is busy and has made no step."""
    job = StuckJob(hosts(cell.nodes), tmp_path, cell)
    job.run({})
    sleep_until(lambda: ALARM in job.nodes[0].err or job.over, job.words, 2400)
    hang = job.hang()
    note(cell, hang)
    assert hang is not None, job.words()
    assert tuple(each["rank"] for each in hang["suspects"]) == cell.names


def test_the_table_covers_all() -> None:
    """Each value of a column four times at least, each moment with each place, and each method with each place."""
    for column in range(len(Cell._fields)):
        assert min(Counter(cell[column] for cell in CELLS).values()) >= 4
    assert len(CELLS) <= 80
    assert len({*CELLS}) == len(CELLS)
    for one, other in (("moment", "place"), ("method", "place")):
        values = [{getattr(cell, name) for cell in CELLS} for name in (one, other)]
        assert {(getattr(cell, one), getattr(cell, other)) for cell in CELLS} == {*itertools.product(*values)}
