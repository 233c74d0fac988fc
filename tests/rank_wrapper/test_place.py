"""What stands before a rank, in plans: which cores it has, which debugger, which command."""

from __future__ import annotations

import json
import shlex

import helpers
import pytest

from ranklaunch import spans
from ranklaunch.env import parse
from ranklaunch.errors import ConfigError


def machine(allowed: str, cpus: int = 0, threads: int = 1, nodes: int = 1) -> dict[str, str]:
    """A machine whose cores are numbered through its NUMA nodes in turn, and whose second threads come after all first ones."""
    cores = cpus // threads
    files = {"/proc/self/status": f"Name:\tx\nCpus_allowed_list:\t{allowed}\n"}
    for cpu in range(cpus):
        siblings = ",".join(str(cpu % cores + cores * i) for i in range(threads))
        files[f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"] = f"{siblings}\n"
    for node in range(nodes):
        files[f"/sys/devices/system/node/node{node}/cpulist"] = spans.text(cpu for cpu in range(cpus) if cpu % cores % nodes == node) + "\n"
    return files


def bound(files: dict[str, str], slots: str, method: str = "spawn", **env: str) -> dict[str, str]:
    """What the first process of the node is told."""
    plan = helpers.plan(helpers.local(1, slots, **{"RANKLAUNCH_BIND": "cores", **env}), files=files, method=method)
    return dict(plan.processes[0].env)


@helpers.for_each(
    [
        (machine("0-7", 8), "2", {}, "0-3:4-7", "4"),
        (machine("0-7", 8, threads=2), "2", {}, "0-1:2-3", "2"),  # one thread of each core
        (machine("0-7", 8, nodes=2), "2", {}, "0,2,4,6:1,3,5,7", "4"),  # a NUMA node each
        (machine("0-7", 8), "3", {}, "0-1:2-3:4-5", "2"),  # what is left over is nobody's
        (machine("2,5-6", 8), "2", {}, "2:5", "1"),  # the container has fewer
        (machine("4-7", 8, threads=2), "2", {}, "4-5:6-7", "2"),  # of each core its second thread
        (machine("0,4", 8, threads=2), "2", {}, "0:4", "1"),  # both threads of one core
        (machine("0-7", 8, threads=2), "2", {"RANKLAUNCH_BIND_CORES": "0-2,6"}, "0-1:2,6", "2"),
        (machine("0-7", 8), "2", {"RANKLAUNCH_BIND": "", "RANKLAUNCH_BIND_CORES": "0-1"}, "0:1", "1"),  # a list is wish enough
        (machine("0-3"), "2", {"OMP_NUM_THREADS": "7"}, "0-1:2-3", None),  # nothing in /sys
    ]
)
def test_each_rank_has_cores_of_its_own(files: dict[str, str], slots: str, env: dict[str, str], cores: str, threads: str | None) -> None:
    told = bound(files, slots, **env)
    assert (told["RANKLAUNCH_PLACE_CORES"], told.get("OMP_NUM_THREADS")) == (cores, threads)


def test_listed_cores_of_another_machine_are_taken_unchecked() -> None:
    plan = helpers.plan(helpers.local(1, "2", RANKLAUNCH_BIND_CORES="60-63"), method="spawn")
    assert plan.processes[0].env["RANKLAUNCH_PLACE_CORES"] == "60-61:62-63"
    assert plan.warnings == (
        "RANKLAUNCH_BIND_CORES=60-63: /proc/self/status does not list the cores of this container, so the listed ones are not checked",
    )


@helpers.for_each(
    [
        ({"RANKLAUNCH_SLOTS": "5"}, ["5 ranks on this node and 4 cores (0-3", "--bind (RANKLAUNCH_BIND) none"]),
        ({"RANKLAUNCH_BIND_CORES": "2-9"}, ["RANKLAUNCH_BIND_CORES='2-9'", "may not use 4-9, only 0-3"]),
        ({"RANKLAUNCH_BIND_CORES": "3,1"}, ["RANKLAUNCH_BIND_CORES='3,1'", "ascending order"]),
        ({"KMP_AFFINITY": "compact"}, ["KMP_AFFINITY=compact contradicts RANKLAUNCH_BIND=cores"]),
        ({"RANKLAUNCH_BIND": "none", "RANKLAUNCH_BIND_MEMORY": "on"}, ["RANKLAUNCH_BIND_MEMORY=on", "--bind (RANKLAUNCH_BIND) cores"]),
        ({"RANKLAUNCH_BIND": "sockets"}, ["expected one of none, cores"]),
        ({"RANKLAUNCH_DEBUGPY": "65535"}, ["2 ranks need 2 ports from this one on"]),
        ({"RANKLAUNCH_RANK_PREFIX": "nice '"}, ["RANKLAUNCH_RANK_PREFIX", "expected shell words"]),
        ({"RANKLAUNCH_RANK_PREFIX": "{{ rnak }}"}, ["RANKLAUNCH_RANK_PREFIX", "'rnak' is undefined"]),
    ]
)
def test_what_cannot_be_is_refused(env: dict[str, str], words: list[str]) -> None:
    given = helpers.local(1, "2", **{"RANKLAUNCH_BIND": "cores", "RANKLAUNCH_METHOD": "spawn", **env})
    with pytest.raises(ConfigError) as caught:
        helpers.plan(given, files=machine("0-3", 4))
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "3-1", "0,0", "1-4,4", "99999"])
def test_lists_of_cores(text: str) -> None:
    with pytest.raises(ValueError, match="ascending order"):
        parse.cores(text)


def test_memory_goes_by_the_cores_where_one_numa_node_has_them() -> None:
    files = machine("0-7", 8, nodes=2)
    plan = helpers.plan(helpers.local(RANKLAUNCH_BIND="cores", RANKLAUNCH_BIND_MEMORY="on"), files=files, method="spawn")
    assert plan.processes[0].env["RANKLAUNCH_PLACE_MEMORY"] == "0:1"
    assert [name for name, _ in plan.processes[0].needs] == ["numactl"]
    mixed = helpers.plan(
        helpers.local(RANKLAUNCH_BIND="cores", RANKLAUNCH_BIND_MEMORY="on"), files=machine("0-3", 4, nodes=4), method="spawn"
    )
    assert "RANKLAUNCH_PLACE_MEMORY" not in mixed.processes[0].env
    assert mixed.processes[0].needs == ()


@helpers.for_each(["spawn", "torchrun", "accelerate", "deepspeed", "megatron", "mpirun", "msrun", "pytorch", "plain", "tensorflow"])
def test_every_method_starts_the_stand_in_with_the_programs_arguments(method: str) -> None:
    """And what follows from the program follows from it itself."""
    env = helpers.local(2, RANKLAUNCH_RANK_PREFIX="nice -n {{ local_rank }}", RANKLAUNCH_DEBUGPY="on")
    plan = helpers.plan(env, "--lr", "a b", method=method)
    (process, *_) = plan.processes
    at = next(i for i, word in enumerate(process.argv) if word.endswith("/programs/place_rank.py"))
    assert process.argv[at + 1 : at + 3] == ("--lr", "a b")
    assert "train.py" not in process.argv
    assert plan.job.program.path == "train.py"
    assert process.env["RANKLAUNCH_PLACE_PROGRAM"] == "python:train.py"
    assert method != "mpirun" or "RANKLAUNCH_PLACE_PROGRAM" in process.argv
    debuggers = next(reading.value for reading in plan.values if reading.name == "debuggers")
    assert len(debuggers.split(",")) == (1 if method in ("pytorch", "plain", "tensorflow") else 2)
    assert [name for name, _ in process.needs] == ["nice"]


@pytest.mark.parametrize(
    ("method", "prefix", "told", "by"),
    [
        ("spawn", "nice", "nice", None),
        ("spawn", "r {{ rank }} '{{ node }} %:,'", "r,2,1%20%25%3A%2C:r,3,1%20%25%3A%2C", None),
        ("torchrun", "{% if rank == 3 %}nsys profile{% endif %}", ":nsys,profile", None),
    ],
)
def test_the_command_before_a_rank_knows_its_rank(method: str, prefix: str, told: str, by: str | None) -> None:
    plan = helpers.plan(helpers.local(2, index=1, RANKLAUNCH_RANK_PREFIX=prefix), method=method)
    env = plan.processes[0].env
    assert (env["RANKLAUNCH_PLACE_PREFIX"], env.get("RANKLAUNCH_PLACE_BY")) == (told, by)


def test_where_node_0_starts_all_ranks_the_command_goes_by_the_rank_in_the_job() -> None:
    env = helpers.plan(helpers.local(2, "1,2", RANKLAUNCH_RANK_PREFIX="r {{ node }}{{ rank }}"), method="mpirun").processes[0].env
    assert (env["RANKLAUNCH_PLACE_PREFIX"], env["RANKLAUNCH_PLACE_BY"]) == ("r,00:r,11:r,12", "rank")


@helpers.for_each(
    {"a module": ("pkg.train", True, "module:pkg.train"), "bash": ("a b.sh", False, "bash:a%20b.sh"), "other": ("x", False, "program:x")}
)
def test_programs_of_other_kinds(path: str, module: bool, told: str) -> None:
    plan = helpers.plan(helpers.local(RANKLAUNCH_RANK_PREFIX="nice"), program=path, module=module, method="torchrun")
    assert plan.processes[0].env["RANKLAUNCH_PLACE_PROGRAM"] == told
    assert not {"-m", "bash", "--no_python"} & {*plan.processes[0].argv}


def test_debuggers_are_for_python() -> None:
    with pytest.raises(ConfigError, match=r"debugpy is for Python programs, and train.sh is not one"):
        helpers.plan(helpers.local(RANKLAUNCH_DEBUGPY="on"), program="train.sh", method="spawn")


@helpers.for_each({"missing": ({}, 1), "there": ({"/opt/py/lib/python3.11/site-packages/debugpy/__init__.py": "import sys"}, 0)})
def test_a_debugger_that_is_not_seen_is_warned_of(more: dict[str, str], warned: int) -> None:
    files = {"/opt/py/bin/python": "", "/opt/py/lib/python3.11/site-packages/x.py": "", **more}
    plan = helpers.plan(helpers.local(RANKLAUNCH_DEBUGPY="on"), files=files, method="spawn", python="/opt/py/bin/python")
    assert sum("debugpy is not among the packages of /opt/py/bin/python" in text for text in plan.warnings) == warned


def test_nothing_stands_before_a_rank_that_nobody_asked_for() -> None:
    for env in ({}, {"RANKLAUNCH_BIND": "none"}, {"RANKLAUNCH_DEBUGPY": "off"}):
        plan = helpers.plan(helpers.local(**env), method="spawn")
        assert "train.py" in plan.processes[0].argv
        assert not any(name.startswith("RANKLAUNCH_PLACE_") for name in plan.processes[0].env)


def test_vscode_attaches_to_every_rank_of_every_node() -> None:
    words = ["plan", "--format", "vscode", "--all-nodes", "--method", "torchrun", "--nodes", "2", "--slots", "2", "--hosts", "n0,n1"]
    found = helpers.call(*words, "--debugpy", "6000", "--debugpy-host", "0.0.0.0", "train.py").json
    told = [(entry["name"], entry["connect"]["host"], entry["connect"]["port"]) for entry in found["configurations"]]
    places = [("n0", 6000), ("n0", 6001), ("n1", 6000), ("n1", 6001)]
    assert told == [(f"rank {rank} (node {rank // 2}, {host})", host, port) for rank, (host, port) in enumerate(places)]
    assert found["compounds"][0]["configurations"] == [name for name, *_ in told]
    assert {(entry["type"], entry["request"]) for entry in found["configurations"]} == {("debugpy", "attach")}


def test_vscode_without_a_debugger_is_refused() -> None:
    done = helpers.call("plan", "--format", "vscode", "--slots", "2", "train.py")
    assert (done.code, "add --debugpy (RANKLAUNCH_DEBUGPY)" in done.err) == (78, True)


@helpers.for_each({"alone": (["--debugpy"], "on"), "port": (["--debugpy", "6000"], "6000"), "equals": (["--debugpy=6000"], "6000")})
def test_the_option_takes_a_port_or_none(words: list[str], told: str) -> None:
    plan = helpers.call("plan", "--format", "json", "--method", "plain", *words, "train.py", "7").json
    port = {"on": "5678"}.get(told, told)
    assert plan["processes"][0]["env"]["RANKLAUNCH_PLACE_DEBUGPY"] == f"127.0.0.1:{port}"
    assert shlex.join(plan["processes"][0]["argv"]).endswith("place_rank.py 7")


def test_debug_sets_the_switches_that_the_user_has_not_set() -> None:
    env = helpers.plan(helpers.local(RANKLAUNCH_DEBUG="on", LOGLEVEL="DEBUG"), method="torchrun").processes[0].env
    assert (env["TORCH_CPP_LOG_LEVEL"], env["TORCH_DISTRIBUTED_DEBUG"], env.get("LOGLEVEL")) == ("INFO", "DETAIL", None)
    assert json.dumps(dict(helpers.plan(helpers.local(), method="torchrun").processes[0].env)).count("TORCH_") == 0
