"""Route planning on three hosts where the topology does not come: on none, and on some alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import helpers
import pytest

from testbench.hosts import Hosts
from testbench.jobs.on_hosts import LauncherJob
from testbench.places import child

FAKE = """
class RoutePlan:
    @staticmethod
    def init(topo_file, rank_file, save_rank_file, cursrvip=None):
        with open(rank_file) as given, open(save_rank_file, "w") as planned:
            planned.write(given.read())
        return True, [], cursrvip
"""
OWN_TOPOLOGY = ("sh", "-c", 'TOPO_FILE_PATH="$PWD/topology-$(hostname).json" exec "$@"', "sh")


@pytest.mark.processes
@pytest.mark.parametrize("having", [0, 2])
def test_all_nodes_keep_the_given_order_or_none_starts(having: int, hosts: Callable[[int], Hosts], tmp_path: Path) -> None:
    cluster = hosts(3)
    servers = [(host.address, [("0", str(host.index))]) for host in cluster]
    (tmp_path / "table.json").write_text(helpers.server_table(servers))
    (tmp_path / "route_plan.py").write_text(FAKE)
    for host in [*cluster][:having]:
        (tmp_path / f"topology-{host.name}.json").write_text(json.dumps({"status": "completed"}))
    job = LauncherJob(cluster, tmp_path, "ranktable", slots=1)
    env = {
        "ROUTE_PLAN": "true", "RANKLAUNCH_RANK_TABLE": str(tmp_path / "table.json"), "RANKLAUNCH_ROUTE_LIBRARY": str(tmp_path),
        "ROUTE_TOPO_WAIT_TIME": "1", "RANKLAUNCH_MUSTER_ALLOW": "topology",
    }  # fmt: skip
    job.start(child("environment.py"), env=env, prefix=OWN_TOPOLOGY)
    verdict = job.end(78 if having else 0)
    if having:
        assert "route_plan differs: true, but without a topology on node 2" in verdict["reason"]
        assert "ROUTE_PLAN=false keeps the given order on all" in verdict["reason"]
    else:
        assert all("if no node has one, ranks keep the order" in node.err for node in job.nodes)
        assert [json.loads(node.log(f"rank_{i}.log"))["env"]["RANK_ID"] for i, node in enumerate(job.nodes)] == ["0", "1", "2"]
