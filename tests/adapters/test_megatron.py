"""What Megatron-LM's programs are told, and what is said of a layout before anything starts."""

from __future__ import annotations

import time

import helpers
import pytest

from ranklaunch.errors import ConfigError
from ranklaunch.plan import planning
from ranklaunch.plan.megatron import ORDER_DP_LAST
from ranklaunch.plan.model import Plan, as_json
from ranklaunch.plan.planning import Request

CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"


def plan(*args: str, nodes: int = 2, slots: int = 8, **env: str) -> Plan:
    return helpers.plan(helpers.modelarts(nodes, slots, 0, **env), *args, program="pretrain_gpt.py", method="megatron")


def told(found: Plan) -> tuple[str, ...]:
    argv = found.processes[0].argv
    return argv[argv.index("pretrain_gpt.py") + 1 :]


def test_sixteen_ranks() -> None:
    found = plan("--bf16", RANKLAUNCH_TP="2", RANKLAUNCH_PP="4")
    assert told(found) == ("--bf16", "--tensor-model-parallel-size", "2", "--pipeline-model-parallel-size", "4")
    layout = as_json(found)["layout"]
    assert {name: layout[name] for name in ("tp", "pp", "cp", "ep", "dp")} == {"tp": 2, "pp": 4, "cp": 1, "ep": 1, "dp": 2}
    assert layout["groups"] == {
        "tp": [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11], [12, 13], [14, 15]],
        "pp": [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]],
        "dp": [[0, 2], [1, 3], [4, 6], [5, 7], [8, 10], [9, 11], [12, 14], [13, 15]],
    }


def test_it_is_torchruns_plan() -> None:
    env = helpers.modelarts(2, 8, 1, RANKLAUNCH_TP="2", MA_EXTRA_TORCHRUN_PARAMS="--rdzv_conf timeout=7200", MA_TORCHRUN_MASTER_PORT="1234")
    found, expected = (helpers.plan(env, program="x.py", method=method, log_dir="/logs") for method in ("megatron", "torchrun"))
    assert found.processes[0].argv == (*expected.processes[0].argv, "--tensor-model-parallel-size", "2")
    assert found.outputs == expected.outputs
    assert found.processes[0].behaviour == expected.processes[0].behaviour == "torchrun"


def test_other_methods_have_no_layout() -> None:
    assert as_json(helpers.plan(helpers.modelarts(2, 8, RANKLAUNCH_TP="2"), method="torchrun"))["layout"] is None


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--tensor-model-parallel-size", "4"], (4, [])),
        (["--tensor-model-parallel-size=4"], (4, [])),
        (["--tensor-model-parallel-size=2", "--tensor-model-parallel-size", "4"], (4, [])),
        (["--tensor-model-parallel-sizes", "4"], (1, [])),
        (["--", "--tensor-model-parallel-size", "4"], (1, [])),
    ],
)
def test_the_programs_own_values_stand(args: list[str], expected: tuple[int, list[str]]) -> None:
    found = plan(*args)
    assert found.layout
    assert (found.layout.tp, list(told(found))) == (expected[0], args)


def test_what_the_program_says_too_is_not_said_again() -> None:
    found = plan("--tensor-model-parallel-size", "4", RANKLAUNCH_TP="4", RANKLAUNCH_CP="2")
    assert told(found) == ("--tensor-model-parallel-size", "4", "--context-parallel-size", "2")
    assert found.warnings == ()


def test_flags_come_before_the_programs_own_end_of_flags() -> None:
    assert told(plan("a", "--", "b", RANKLAUNCH_EP="2")) == ("a", "--expert-model-parallel-size", "2", "--", "b")


def test_its_order_of_ranks_is_the_programs() -> None:
    found = plan("--use-tp-pp-dp-mapping", RANKLAUNCH_PP="2")
    assert found.layout
    assert found.layout.order == ORDER_DP_LAST


@pytest.mark.parametrize(
    ("args", "env", "words"),
    [
        ([], {"RANKLAUNCH_TP": "3"}, ["16 ranks cannot be divided by tp 3", "RANKLAUNCH_TP=3"]),
        (["--tensor-model-parallel-size=5"], {}, ["tp 5", "program's --tensor-model-parallel-size=5"]),
        ([], {"RANKLAUNCH_EP": "3", "RANKLAUNCH_TP": "2"}, ["tp 2 x ep 3 x pp 1 = 6", "experts", "RANKLAUNCH_EP=3"]),
        (["--expert-tensor-parallel-size", "32"], {}, ["tp of experts 32"]),
        (["--tensor-model-parallel-size", "4"], {"RANKLAUNCH_TP": "2"}, ["RANKLAUNCH_TP=2 contradicts", "--tensor-model-parallel-size 4"]),
        (["--pipeline-model-parallel-size"], {}, ["--pipeline-model-parallel-size ''", "whole number"]),
        (["--context-parallel-size=-1"], {}, ["--context-parallel-size '-1'", "whole number"]),
        ([], {"RANKLAUNCH_PP": "2.5"}, ["RANKLAUNCH_PP='2.5'", "whole number"]),
        (["--use-tp-pp-dp-mapping"], {"RANKLAUNCH_PP": "2", "RANKLAUNCH_CP": "2"}, [ORDER_DP_LAST]),
    ],
)
def test_a_layout_that_cannot_be_is_refused(args: list[str], env: dict[str, str], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        plan(*args, **env)
    assert all(word in str(caught.value) for word in words), caught.value


@helpers.for_each(
    [
        ("--num-layers 30", "--num-layers 30: 30 layers cannot be divided by pp 4"),
        ("--num-layers 32", ""),
        ("--num-layers 30 --account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split", ""),
        ("--num-layers 30 --decoder-first-pipeline-num-layers 6", ""),
        ("--num-layers 30 --pipeline-model-parallel-layout Et*7|t*8|t*8|t*7L", ""),
        ("--num-layers 32 --num-layers-per-virtual-pipeline-stage 4", ""),
        (
            "--num-layers 32 --num-layers-per-virtual-pipeline-stage 3",
            "cannot be divided by pp 4 x --num-layers-per-virtual-pipeline-stage 3",
        ),
        ("--num-attention-heads 7", "--num-attention-heads 7 cannot be divided by tp 2"),
        ("--num-query-groups 3 --group-query-attention", "--num-query-groups 3 and tp 2"),
        ("--num-query-groups 1 --group-query-attention", ""),
        ("--num-query-groups 3", ""),
        (
            "--micro-batch-size 4 --global-batch-size 12",
            "--global-batch-size 12 cannot be divided by --micro-batch-size 4 x dp 2 = 8; 8 or 16 can",
        ),
        ("--micro-batch-size 4 --global-batch-size 4", "= 8; 8 can"),
        ("--micro-batch-size 4 --global-batch-size 12 --rampup-batch-size 4 4 100", ""),
        ("--micro-batch-size 4 --global-batch-size 12 --global-batch-size=16", ""),
        ("--seq-length 4095 --sequence-parallel", "--seq-length 4095 cannot be divided by tp 2"),
        ("--seq-length 4095", ""),
        ("--num-experts 8", "--num-experts with tp 2 needs --sequence-parallel"),
        ("--num-experts 8 --sequence-parallel", ""),
        ("--num-layers $LAYERS", ""),
        ("-- --num-layers 30", ""),
    ]
)
def test_a_model_that_does_not_fit_its_layout_is_refused(args: str, words: str) -> None:
    """Which Megatron does too: once all nodes are there, and PyTorch is loaded."""
    if not words:
        assert plan(*args.split(), RANKLAUNCH_TP="2", RANKLAUNCH_PP="4")
        return
    with pytest.raises(ConfigError) as caught:
        plan(*args.split(), RANKLAUNCH_TP="2", RANKLAUNCH_PP="4")
    assert words in str(caught.value)


def test_a_sequence_or_experts_that_cannot_be_divided_are_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        plan("--seq-length", "4098", "--num-experts", "6", RANKLAUNCH_CP="4", RANKLAUNCH_EP="4")
    assert [str(problem).partition("the program's ")[2] for problem in caught.value.problems] == [
        "--seq-length 4098 cannot be divided by 2 x cp 4",
        "--num-experts 6: 6 experts cannot be divided by ep 4",
    ]


@pytest.mark.parametrize(
    ("tp", "slots", "words"),
    [
        ("4", "8,8", []),
        ("8", "8,8", []),
        ("16", "8,8", ["RANKLAUNCH_TP=16", "ranks 0 to 15", "rank 8 is the first of node 1", "(8)"]),
        ("3", "4,8", ["RANKLAUNCH_TP=3", "ranks 3 to 5", "rank 4 is the first of node 1", "(4, 8)"]),
        ("4", "4,8", []),
    ],
)
def test_tensor_groups_over_nodes_are_named(tp: str, slots: str, words: list[str]) -> None:
    warnings = plan(RANKLAUNCH_TP=tp, RANKLAUNCH_SLOTS=slots).warnings
    assert len(warnings) == bool(words)
    assert all(word in warnings[0] for word in words), warnings


@pytest.mark.parametrize(
    ("args", "env", "expected"),
    [
        ([], {"CUDA_VERSION": "12.6", "RANKLAUNCH_TP": "2"}, "1"),
        ([], {"CUDA_VERSION": "12.6", "RANKLAUNCH_CP": "2"}, "1"),
        ([], {"CUDA_VERSION": "12.6", "RANKLAUNCH_PP": "2"}, None),
        ([], {"CUDA_VERSION": "12.6", "RANKLAUNCH_TP": "2", CONNECTIONS: "32"}, None),
        (["--use-torch-fsdp2"], {"CUDA_VERSION": "12.6", "RANKLAUNCH_TP": "2"}, None),
        (["--use-megatron-fsdp"], {"CUDA_VERSION": "12.6", "RANKLAUNCH_TP": "2"}, None),
        ([], {"ASCEND_VISIBLE_DEVICES": "0-7", "RANKLAUNCH_TP": "2"}, None),
    ],
)
def test_one_connection_where_megatron_requires_it(args: list[str], env: dict[str, str], expected: str | None) -> None:
    found = plan(*args, **env)
    assert found.processes[0].env.get(CONNECTIONS) == expected
    assert CONNECTIONS not in found.processes[0].unset


@pytest.mark.parametrize("node", [0, 9_999])
def test_a_job_of_10000_nodes(node: int) -> None:
    env = helpers.modelarts(10_000, 8, 0, RANKLAUNCH_TP="8", RANKLAUNCH_PP="16")
    request = planning.for_node(Request(helpers.Program("train.py"), env, helpers.MemoryFiles(), {"method": "megatron"}, "/"), node)
    started = time.process_time()
    found = planning.make_plan(request)
    assert found.layout
    assert found.layout.dp == 625
    assert found.layout.groups("pp")[-1] == list(range(4_999, 80_000, 5_000))
    assert time.process_time() - started < 5


SCRIPT = """#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=${GPUS_PER_NODE:-8}
TP=${TP:-2}
CHECKPOINT=$1
DISTRIBUTED_ARGS=(--nproc_per_node $GPUS_PER_NODE --nnodes ${NNODES:-1} --node_rank $NODE_RANK --master_addr $MASTER_ADDR)
PARALLEL="
    --tensor-model-parallel-size $TP \\
    --pipeline-model-parallel-size 4
"
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py $PARALLEL --num-layers 32 --save $CHECKPOINT --data-path $(ls data) MORE
"""


def of_script(text: str, **env: str) -> Plan:
    files = {f"{helpers.CWD}/run.sh": text}
    return helpers.plan(helpers.modelarts(2, 8, 0, **env), "/ckpt", program="run.sh", files=files, method="megatron")


@pytest.mark.parametrize("program", ["pretrain_gpt.py", "$(pwd)/pretrain_gpt.py"])
def test_a_script_that_starts_its_ranks_itself_is_read(program: str) -> None:
    found = of_script(SCRIPT.replace("pretrain_gpt.py", program))
    assert (found.method, found.processes[0].argv, found.warnings) == ("megatron", ("bash", "run.sh", "/ckpt"), ())
    assert found.layout
    assert (found.layout.world_size, found.layout.tp, found.layout.pp, found.layout.dp) == (16, 2, 4, 2)


@pytest.mark.parametrize(
    ("text", "env", "said"),
    [
        (SCRIPT, {"TP": "3"}, "16 ranks cannot be divided by tp 3 x pp 4"),
        (SCRIPT.replace("32", "30"), {}, "the program's --num-layers 30: 30 layers cannot be divided by pp 4"),
        (SCRIPT, {"RANKLAUNCH_TP": "4"}, "RANKLAUNCH_TP=4 contradicts the program's own --tensor-model-parallel-size 2"),
        (SCRIPT, {"RANKLAUNCH_CP": "2"}, "RANKLAUNCH_CP=2: run.sh starts its ranks itself and has no --context-parallel-size"),
    ],
)
def test_what_a_script_says_must_fit(text: str, env: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        of_script(text, **env)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            SCRIPT.replace("TP=${TP:-2}", "TP=$(count)"),
            "the words after '--tensor-model-parallel-size' are known only when the script runs",
        ),
        (SCRIPT.replace("TP=${TP:-2}", "TP=3; if big; then TP=4; fi"), "it starts ranks in 2 places or ways"),
        (SCRIPT.replace("MORE", "$(more)"), "the words after '...'"),
        (SCRIPT.replace("TP=${TP:-2}", "TP=3\n. env.sh"), "are known only when the script runs"),
        (SCRIPT.replace("${GPUS_PER_NODE:-8}", "4"), "it starts 8 ranks, and this job has 16"),
        (f"{SCRIPT}torchrun again.py", "it starts ranks in 2 places or ways"),
    ],
)
def test_what_is_not_known_of_a_script_is_not_guessed(text: str, said: str) -> None:
    found = of_script(text)
    assert (found.layout, len(found.warnings)) == (None, 1)
    assert found.warnings[0].startswith("run.sh: its layout is not checked: ")
    assert said in found.warnings[0]
