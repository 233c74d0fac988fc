"""DeepSpeed's --include, --exclude, --num_nodes and --num_gpus: which nodes, slots and devices are left of a job."""

from __future__ import annotations

from typing import Any

import helpers
import pytest

from ranklaunch.adapters.launchers.shared.deepspeed import options
from ranklaunch.env.job import Node
from ranklaunch.errors import ConfigError, MissingProgramError
from ranklaunch.plan.model import Plan
from ranklaunch.processes import children

EXTRA = "RANKLAUNCH_EXTRA_DEEPSPEED_PARAMS"
PDSH = {"RANKLAUNCH_DEEPSPEED_LAUNCHER": "pdsh"}


def plan(extra: str = "", node: int = 0, slots: str = "4", nodes: int = 3, options: dict[str, str] | None = None, **env: str) -> Plan:
    given = helpers.local(nodes, slots, node, **{EXTRA: extra, **env})
    return helpers.plan(given, method="deepspeed", **(options or {}))


def refusal(*args: Any, **more: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        plan(*args, **more)
    return str(caught.value)


def shape(found: Plan) -> list[tuple[str, int, int, tuple[int, ...]]]:
    assert [node.index for node in found.job.nodes] == list(range(len(found.job.nodes)))
    return [(node.host, node.slots, node.first_rank, node.devices) for node in found.job.nodes]


def told(found: Plan) -> str:
    """The filters that DeepSpeed itself is told."""
    given = options.PARSER.parsed(found.processes[0].argv[1:])
    return " ".join(option.value for option in given if option.name in ("--include", "--exclude", "--num_nodes"))


ALL = [("n0", 4, 0, ()), ("n1", 4, 4, ()), ("n2", 4, 8, ())]


@helpers.for_each(
    [
        ("--include n0@n1:0,2", [("n0", 4, 0, ()), ("n1", 2, 4, (0, 2))], "n0@n1:0,2"),
        ("-i n1:2,0,2@n0", [("n0", 4, 0, ()), ("n1", 2, 4, (0, 2))], "n0@n1:0,2"),
        ("-in2:0,1", [("n2", 2, 0, ())], ""),
        ("--inc=n2@n0", [("n0", 4, 0, ()), ("n2", 4, 4, ())], ""),
        ("--exclude n1", [("n0", 4, 0, ()), ("n2", 4, 4, ())], ""),
        ("-e=n0@n2:0,1", [("n1", 4, 0, ()), ("n2", 2, 4, (2, 3))], "n1@n2:2,3"),
        ("--exclude=n0:3@n1:3@n2:3", [("n0", 3, 0, ()), ("n1", 3, 3, ()), ("n2", 3, 6, ())], ""),
        ("--num_nodes=2 --num_gpus 1", [("n0", 1, 0, ()), ("n1", 1, 1, ())], ""),
        ("--num_a=2", [("n0", 2, 0, ()), ("n1", 2, 2, ()), ("n2", 2, 4, ())], ""),
        ("--num_nodes=1 --num_nodes 2", [("n0", 4, 0, ()), ("n1", 4, 4, ())], ""),
        ("--num_nodes=-1 --num_gpus=-1 -i ''", ALL, ""),
        ("--include n0@n1@n2", ALL, ""),
        ("--launcher_args '--include n0'", ALL, ""),
    ]
)
def test_what_is_left(extra: str, nodes: list[Any], include: str) -> None:
    found = plan(extra, node=2 if "n2" in str(nodes) else 1)
    assert shape(found) == nodes
    assert found.job.node.host == ("n2" if "n2" in str(nodes) else "n1")
    assert told(found) == (include if len(nodes) > 1 else "")
    assert found.job.world_size == sum(slots for _, slots, _, _ in nodes)


@pytest.mark.parametrize("extra", ["--exclude n0", "--include n1@n2"])
def test_everything_goes_by_the_nodes_that_are_left(extra: str) -> None:
    """The first of them is node 0, of the rendezvous and of the muster; the others have no process, and are told the end."""
    plans = [plan(extra, node) for node in range(3)]
    idle, first, second = plans
    assert [each.job.node_index for each in plans] == [2, 0, 1]
    assert [each.muster and (each.muster.node, each.muster.hosts, each.muster.followers) for each in plans] == [
        (index, ("n1", "n2", "n0"), 1) for index in (2, 0, 1)
    ]
    assert idle.processes == idle.services == idle.files == ()
    assert idle.job.idle == (Node(2, "n0", 0, 8),)
    for rank, each in enumerate((first, second)):
        argv = each.processes[0].argv
        assert argv[argv.index("--node_rank") + 1 :][:3] == (str(rank), "--master_addr", "n1")
        assert each.files[0].text == "n1 slots=4\nn2 slots=4\n"
        assert each.outputs
        assert [log.rank for log in each.outputs.logs] == list(range(4 * rank, 4 * rank + 4))
    facts = [helpers.of_all(each.muster.facts) for each in plans if each.muster]
    assert facts[0] == facts[1] == facts[2]
    assert facts[0]["world_size"] == "8"


def test_a_single_node_that_is_left_trains_alone_and_the_others_hear_of_its_end() -> None:
    found, other = plan("--include n1:1,3", 1), plan("--include n1:1,3", 0)
    assert found.processes[0].argv[1:5] == ("--hostfile", "/dev/null", "--include", "localhost:1,3")
    assert (found.job.node_index, other.job.node_index, other.processes) == (0, 1, ())
    assert found.muster
    assert (found.muster.hosts, found.muster.followers) == (("n1", "n0", "n2"), 2)


def test_from_node_0_only_those_that_take_part_are_reached() -> None:
    plans = [plan("--include n0@n1:0,2", node, **PDSH, HOME="/root") for node in range(3)]
    assert told(plans[0]) == "n0@n1:0,2"
    assert next(file.text for file in plans[0].files if file.path.endswith("/hostfile")) == "n0 slots=4\nn1 slots=3\n"
    assert [len(each.services) for each in plans] == [1, 1, 0]
    assert [wait.what for wait in plans[0].waits if wait.kind == "hosts"] == ["n0,n1"]
    assert all(each.muster and each.muster.followers == 2 for each in plans)


def test_what_has_no_word_for_a_choice_gets_none() -> None:
    """Of MPI's, DeepSpeed refuses every filter; a hostfile of those that are left says the same. srun is told the nodes."""
    assert told(plan("--exclude n1", RANKLAUNCH_DEEPSPEED_LAUNCHER="openmpi", HOME="/root")) == ""
    assert told(plan("--exclude n1", RANKLAUNCH_DEEPSPEED_LAUNCHER="slurm")) == "n0@n2"
    for by in ("openmpi", "mpich", "slurm"):
        assert f"LAUNCHER={by}: DeepSpeed then cannot choose devices" in refusal("-i n0:1@n1:1", RANKLAUNCH_DEEPSPEED_LAUNCHER=by)


def test_options_of_our_own() -> None:
    by_option = plan(options={"include": "n0@n2"})
    assert shape(by_option) == shape(plan(RANKLAUNCH_INCLUDE="n0@n2")) == [("n0", 4, 0, ()), ("n2", 4, 4, ())]
    # They come before DeepSpeed's own, and the plan says what they override.
    found = plan("-i n1", RANKLAUNCH_INCLUDE="n0@n2")
    assert shape(found) == shape(by_option)
    (reading,) = [each for each in found.values if each.name == "include"]
    assert (reading.source, [each.source for each in reading.overrides]) == ("RANKLAUNCH_INCLUDE", [f"{EXTRA} --include"])
    assert shape(plan(RANKLAUNCH_NUM_NODES="1", RANKLAUNCH_NUM_GPUS="2")) == [("n0", 2, 0, ())]


@helpers.for_each(
    [
        ("-i n0 -e n1", f"{EXTRA} --include='n0' beside {EXTRA} --exclude='n1'"),
        ("-i n0 --num_gpus 2", f"{EXTRA} --include='n0' beside {EXTRA} --num_gpus='2'"),
        ("-e n3", f"{EXTRA} --exclude=n3: no node of this job is called n3; they are n0, n1, n2"),
        ("-i n3:0@n4", "no node of this job is called n4"),
        ("-i n0:0,4", f"{EXTRA} --include=n0:0,4: n0 has no slot 4, it has slots 0 to 3; --slots (RANKLAUNCH_SLOTS) sets the number"),
        ("-e n0@n1@n2", "none of the job's 12 slots remain"),
        ("-e n0:x", "expected HOST or HOST:SLOT,SLOT, with @ between several"),
        ("-e n0:", "expected HOST or HOST:SLOT,SLOT, with @ between several"),
        ("-i @", "expected HOST or HOST:SLOT,SLOT, with @ between several"),
        ("--num_nodes 4", f"{EXTRA} --num_nodes=4: expected at most 3, the nodes of this job"),
        ("--num_nodes 0", "expected a whole number from 1"),
        ("--num_gpus 5", f"{EXTRA} --num_gpus=5: n0 has no slot 4, it has slots 0 to 3; --slots"),
        ("-i n0@n1:0,2,3", "would have LOCAL_RANK 1"),
    ]
)
def test_filters_that_are_refused(extra: str, said: str) -> None:
    assert said in refusal(extra)


def test_a_node_that_takes_no_part_needs_nothing() -> None:
    """Neither the program, which is nowhere here, nor what it needs installed."""
    plans = [
        helpers.plan(helpers.local(2, "2", node), files={"pip-requirements.txt": ""}, method="deepspeed", exclude="n1") for node in (0, 1)
    ]
    assert [len(each.prepare) for each in plans] == [1, 0]
    children.require_program(plans[1])
    with pytest.raises(MissingProgramError):
        children.require_program(plans[0])


def test_without_a_muster_nobody_would_tell_the_others() -> None:
    assert "some nodes wait for the end of the rest" in refusal("-e n1", RANKLAUNCH_MUSTER="off")
    assert not plan("-i n0:1@n1:1@n2:1", RANKLAUNCH_MUSTER="off").muster


def test_another_first_node_needs_a_name() -> None:
    env = helpers.only_first_named(3, 2, 1, **{EXTRA: "-e bert-master-0"})
    with pytest.raises(ConfigError) as caught:
        helpers.plan(env, method="deepspeed")
    assert "without node 0 (bert-master-0) the first node is one without a name" in str(caught.value)
    found = helpers.plan({**env, EXTRA: "-e unnamed-1"}, method="deepspeed")
    assert (found.job.is_idle, [node.host for node in found.job.nodes]) == (True, ["bert-master-0", ""])


# On one node, which DeepSpeed calls localhost


def alone(extra: str, slots: str = "4", **env: str) -> list[str]:
    given = {"RANKLAUNCH_ACCELERATOR": "gpu", "RANKLAUNCH_SLOTS": slots, EXTRA: extra, **env}
    words = helpers.plan({name: value for name, value in given.items() if value}, method="deepspeed").processes[0].argv
    return [word for word in words[3:5] if word != "--master_port"]


@helpers.for_each(
    [
        (("-i localhost:1,3",), ["--include", "localhost:1,3"]),
        (("-i localhost:0,1",), ["--num_gpus", "2"]),
        (("-e localhost:0",), ["--include", "localhost:1,2,3"]),
        (("--num_gpus 3",), ["--num_gpus", "3"]),
        # Nobody has counted: what is named is there.
        (("-i localhost:2,5", ""), ["--include", "localhost:2,5"]),
        (("--num_gpus 2", ""), ["--num_gpus", "2"]),
        # DeepSpeed sees all devices of its machine, whatever a variable chooses.
        (("-i localhost:6,7", "2"), ["--include", "localhost:6,7"]),
    ]
)
def test_on_one_node(given: Any, words: list[str]) -> None:
    assert alone(*given) == words


def test_on_one_node_devices_beside_those_that_a_variable_chooses() -> None:
    assert alone("-i localhost:4", "2", CUDA_VISIBLE_DEVICES="4,5") == ["--include", "localhost:4"]
    # DeepSpeed itself refuses a device that it does not see.
    assert alone("-i localhost:6", "2", CUDA_VISIBLE_DEVICES="4,5") == ["--include", "localhost:6"]
    with pytest.raises(ConfigError, match="has no slot 6, it has slots 0 to 1"):
        alone("-e localhost:6", "2", CUDA_VISIBLE_DEVICES="4,5")


# What is shown


def test_plans_of_all_nodes_come_in_the_order_of_the_job() -> None:
    env = {**helpers.local(3, "1,3,4", 1), "RANKLAUNCH_METHOD": "deepspeed", "RANKLAUNCH_EXCLUDE": "n0@n2:0", "PATH": "/usr/bin"}
    found = helpers.call("plan", "--all-nodes", "--format=json", "--log-dir=/logs", "train.py", env=env).json
    assert [(each["job"]["node_index"], len(each["processes"])) for each in found] == [(0, 1), (1, 1), (2, 0)]
    assert found[1]["job"]["nodes"][1] == {"index": 1, "host": "n2", "slots": 3, "first_rank": 3, "devices": [1, 2, 3]}
    assert found[2]["job"]["idle"] == [{"index": 2, "host": "n0", "slots": 0, "first_rank": 6}]
    text = helpers.call("plan", "--node=0", "--log-dir=/logs", "train.py", env=env).out
    assert "this node takes no part, n0, and ends after the others\nidle      n0\n" in text
    assert "ranks 3 to 5 on devices 1,2,3" in helpers.call("plan", "--node=2", "--log-dir=/logs", "train.py", env=env).out
    checked = helpers.call("check", "--node=0", "--log-dir=/tmp", "true", env=env).out
    assert "a node that takes no part, 0 ranks here" in checked
