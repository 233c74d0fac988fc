"""Which differences between the arguments and variables of nodes make a job wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import helpers
import pytest

from ranklaunch.env.job import Job, Program, make_nodes
from ranklaunch.muster.membership import Entry, Roll
from ranklaunch.plan import agreement
from ranklaunch.plan.agreement import Agreement, Teller
from ranklaunch.plan.facts import LONGEST
from ranklaunch.plan.model import Limits, Plan, Process


def plan(*args: str, env: dict[str, str] | None = None, unset: tuple[str, ...] = ()) -> Plan:
    job = Job("j", "local", 1, make_nodes(("a", "b"), (1, 1)), 0, "gpu", Program("train.py", args), "python", "/logs")
    process = Process(name="rank 0", argv=("x",), log="l", env=env or {}, unset=unset)
    return Plan(job=job, method="spawn", why="", processes=(process,), limits=Limits(1, 1))


def told(*nodes: dict[str, str], allowed: tuple[str, ...] = (), hosts: tuple[str, ...] = ()) -> list[str]:
    """What a roll of these nodes refuses, or warns of."""
    roll = Roll(hosts or tuple(f"worker-{i}.job" for i in range(len(nodes))), allowed)
    for node, facts in enumerate(nodes):
        entry = Entry(node, f"i{node}", "", f"::ffff:10.0.0.{node}" if node else "this container", 0.0)
        roll.add(entry)
        roll.ready(entry, facts, 1.0)
    assert roll.differ is bool(roll.problems())
    return [*roll.problems(), *(f"warning: {text}" for text in roll.warnings())]


def words(*args: str) -> dict[str, str]:
    return agreement.of_ranks(plan(*args), {})


# What a node tells


def test_arguments_and_what_steers_communication() -> None:
    env = {"NCCL_ALGO": "Ring", "HCCL_ALGO": "x", "NCCL_IB_DISABLE": "1", "PATH": "/bin", "NCCLX": "1"}
    facts = agreement.of_ranks(plan("--name", "a b", env={"NCCL_ALGO": "Tree"}, unset=("HCCL_ALGO",)), env)
    assert facts == {"arguments": "--name 'a b'", "NCCL_ALGO": "Tree", "NCCL_IB_DISABLE": "1"}


def test_one_without_ranks_and_a_ps_tell_nothing() -> None:
    without = replace(plan(), processes=())
    assert agreement.of_ranks(without, {"NCCL_ALGO": "x"}) == {}
    job = plan().job
    nodes = tuple(node._replace(task=task) for node, task in zip(job.nodes, ("ps", "worker")))
    assert agreement.of_ranks(replace(plan(), job=replace(job, nodes=nodes)), {}) == {}
    assert agreement.of_ranks(replace(plan(), job=replace(job, nodes=nodes, node_index=1)), {}) == {"arguments": ""}


def test_secrets_are_hidden_and_long_words_short() -> None:
    facts = words("--token", "Zx81-secret", "--url=https://u:Zx81-secret@host/", "x" * 5000)
    assert "Zx81-secret" not in facts["arguments"]
    assert len(facts["arguments"]) < 3 * LONGEST
    many, more = words(*["word"] * 10_000), words(*["word"] * 9_999, "other")
    assert len(many["arguments"]) < agreement.MOST_ARGUMENTS + LONGEST
    assert many != more
    assert told(many, many) == []
    assert told(many, more) != []


# What is compared


@pytest.mark.parametrize(
    "nodes",
    [
        [["--lr", "1"], ["--lr", "1"]],
        [["--node_rank=0"], ["--node_rank=1"]],
        [["--log", "/logs/node_0/out"], ["--log", "/logs/node_1/out"]],
        [["worker-0.job:29500"], ["worker-1.job:29500"]],
        [["--host", "worker-0"], ["--host", "worker-1"]],
        [["--ip", "10.0.0.7"], ["--ip", "10.0.0.1"]],
        [["tcp://10.0.0.7:1", "--rank", "0", "--world", "2"], ["tcp://10.0.0.1:1", "--rank", "1", "--world", "2"]],
        [["--bs", "1", "--rank", "0"], ["--bs", "1", "--rank", "1"]],
        [["--token", "a-secret-of-one"], ["--token", "a-secret-of-another"]],
    ],
    ids=str,
)
def test_arguments_that_agree(nodes: list[list[str]]) -> None:
    assert told(*(words(*node) for node in nodes)) == []


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([["--batch_size", "16"], ["--batch_size", "32"]], "--batch_size 16 on node 0 (worker-0.job), --batch_size 32 on node 1"),
        ([["--lr=0.1"], ["--lr=1.0"]], "--lr=0.1 on node 0 (worker-0.job), --lr=1.0 on node 1"),
        ([["--rank=1"], ["--rank=0"]], "--rank=1 on node 0 (worker-0.job), --rank=0 on node 1"),
        ([["--host", "worker-1"], ["--host", "worker-1x"]], "--host worker-1 on node 0"),
        ([["--bf16"], []], "--bf16 on node 0 (worker-0.job), (none) on node 1"),
        ([["a", "b"], ["b", "a"]], "a b on node 0"),
        ([["x"], ["x"], ["y"]], "y on node 2 (worker-2.job), x on nodes 0-1"),
    ],
    ids=str,
)
def test_arguments_that_differ(nodes: list[list[str]], expected: str) -> None:
    (problem,) = told(*(words(*node) for node in nodes))
    assert problem.startswith("arguments differ: ")
    assert expected in problem
    for name in ("arguments", "program", "all"):
        assert told(*(words(*node) for node in nodes), allowed=(name,)) == []


@pytest.mark.parametrize("word", ["hf_{}", "--hub=hf_{}", "--to=https://host/x?sig={}", "{}"])
def test_tokens_among_the_arguments_are_not_told(word: str) -> None:
    """Whatever the option is called that they stand behind."""
    token = "ghp_" + "a1" * 18 if word == "{}" else "aB1" * 11
    facts = words("--lr", "1", word.format(token))
    assert token not in facts["arguments"]
    assert "--lr 1" in facts["arguments"]
    assert words("--per_device_train_batch_size", "8", "/models/llama-3-8b-instruct-finetuned-2026") == {
        "arguments": "--per_device_train_batch_size 8 /models/llama-3-8b-instruct-finetuned-2026"
    }


@helpers.for_each([
        "NCCL_ALGO", "NCCL_PROTO", "NCCL_P2P_DISABLE", "NCCL_NVLS_ENABLE", "NCCL_NET", "HCCL_ALGO", "HCCL_OP_EXPANSION_MODE",
        "HCCL_BUFFSIZE", "HCCL_INTRA_ROCE_ENABLE", "GLOO_DEVICE_TRANSPORT", "TORCH_NCCL_CUDA_EVENT_CACHE_DISABLE",
    ])  # fmt: skip
def test_communication_that_must_agree(name: str) -> None:
    assert told({**words(), name: "1"}, words()) == [f"{name} differs: 1 on node 0 (worker-0.job), (none) on node 1 (worker-1.job)"]
    assert told({**words(), name: "1"}, {**words(), name: "1"}) == []
    for first, second in (("0", "1"), ("1", "0")):  # a switch, and not each node's index
        (problem,) = told({**words(), name: first}, {**words(), name: second})
        assert problem == f"{name} differs: {first} on node 0 (worker-0.job), {second} on node 1 (worker-1.job)"
    assert told({**words(), name: "1"}, words(), allowed=(name,)) == []


@pytest.mark.parametrize(
    "name", ["NCCL_DEBUG", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "HCCL_EXEC_TIMEOUT", "TORCH_NCCL_BLOCKING_WAIT"]
)
def test_communication_that_may_differ(name: str) -> None:
    (warning,) = told({**words(), name: "x"}, {**words(), name: "y"})
    assert warning == f"warning: {name} differs: x on node 0 (worker-0.job), y on node 1 (worker-1.job)"
    assert told({**words(), name: "x"}, words(), allowed=(name,)) == []


def test_a_node_may_name_itself_in_its_variables() -> None:
    assert told({**words(), "HCCL_IF_IP": "10.0.0.7"}, {**words(), "HCCL_IF_IP": "10.0.0.1"}) == []


def test_a_node_that_tells_nothing_is_not_compared() -> None:
    assert told({**words("--x"), "NCCL_ALGO": "Ring"}, {}, {**words("--x"), "NCCL_ALGO": "Ring"}) == []


def test_one_that_goes_takes_its_difference_along() -> None:
    found = Agreement()
    facts: list[dict[str, Any]] = [words("1"), words("2"), words("2", "3"), words("1")]
    for node, each in enumerate(facts):
        found.add(f"i{node}", Teller(node, (f"h{node}",), f"10.0.0.{node}"), each)
    assert found.differ
    found.remove("i2")
    assert found.differ
    found.remove("i1")
    assert not found.differ
    found.remove("i1")
    found.add("again", Teller(1, ("h1",), "10.0.0.1"), words("7"))
    assert found.differ


def test_thousands_that_all_differ_take_no_time() -> None:
    roll = Roll([f"worker-{i}" for i in range(4096)])
    for node in range(4096):
        entry = Entry(node, f"i{node}", "", f"10.0.{node >> 8}.{node & 255}", 0.0)
        roll.add(entry)
        roll.ready(entry, {"arguments": f"--host worker-{node} --rank {node} --lr 0.1 --epochs 3"}, 1.0)
        assert not roll.differ
