"""trains.py on several hosts, with failures, and what has to come out."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import helpers

from testbench.hosts import Host, Hosts
from testbench.jobs.on_hosts import LauncherJob
from testbench.places import child
from testbench.waiting import sleep_until

STEPS = 8
OWN_TABLE = ("sh", "-c", 'RANK_TABLE_FILE="$PWD/table-$(hostname).json" exec "$@"', "sh")


def undisturbed(ranks: int) -> list[int]:
    """What trains.py has at its end, computed here."""
    parameters = [1, 2, 3]
    for step in range(1, STEPS + 1):
        sums = [sum(value * (rank + 1) % 1009 + step for rank in range(ranks)) for value in parameters]
        parameters = [(value + more) % 100003 for value, more in zip(parameters, sums)]
    return parameters


class Training:
    """On 3 hosts, with 2 ranks on each, or with 1."""

    def __init__(self, hosts: Hosts, folder: Path, method: str, *fails: str, slots: int = 2, env: dict[str, str] | None = None) -> None:
        self.ranks = 3 * slots
        self.folder = folder / "training"
        self.folder.mkdir()
        self.job = LauncherJob(hosts, folder, method, slots)
        self._hosts, self._slots = hosts, slots
        for host in hosts if method == "ranktable" else ():
            self.place_table(host, 1)
        prefix = OWN_TABLE if method == "ranktable" else ()
        self.job.start(child("trains.py"), self.folder, STEPS, *fails, env={"RANKLAUNCH_MAX_RESTARTS": "3", **(env or {})}, prefix=prefix)

    def place_table(self, at: Host, version: int) -> None:
        """As kubelet does: whole, and on each host at a time of its own."""
        ids = iter(range(self.ranks))
        servers = [(host.address, [(str(i), str(next(ids))) for i in range(self._slots)]) for host in self._hosts]
        beside = self.folder.parent / f"{at.name}.new"
        beside.write_text(helpers.server_table(servers).replace("198.51.100.", f"198.51.{100 + version}."))
        beside.rename(self.folder.parent / f"table-{at.name}.json")

    def wait_for(self, name: str) -> None:
        sleep_until(lambda: (self.folder / name).exists(), lambda: f"{name}; {self.job.words()}", 240)

    def check(self, rounds: int) -> list[dict[str, Any]]:
        """The history, which is the same on all nodes."""
        self.job.end(0)
        finals = [json.loads((self.folder / f"final_{rank}").read_text()) for rank in range(self.ranks)]
        assert finals == [undisturbed(self.ranks)] * self.ranks
        assert not (self.folder / "twice").exists()
        histories = [node.verdict["restarts"] for node in self.job.nodes]
        assert histories[0] == histories[1] == histories[2]
        assert [restart["round"] for restart in histories[0]] == list(range(rounds))
        counts = {int(found) for node in self.job.nodes for found in re.findall(rf"ready \d of {self.ranks}, count (\d+)", node.out)}
        assert counts == set(range(rounds + 1))
        return list(histories[0])
