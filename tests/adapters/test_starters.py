"""A program that is a launcher of ranks runs once on each node, or is refused with the line to write instead."""

from __future__ import annotations

import re
import shlex

import helpers
import pytest

from ranklaunch.adapters.launchers.shared import starters
from ranklaunch.env.job import SHELLS, WRAPPERS
from ranklaunch.errors import ConfigError
from ranklaunch.plan.model import Plan
from testbench import places


def plan(
    line: str, nodes: int = 1, slots: str = "2", method: str = "", node: int = 0, files: dict[str, str] | None = None, **env: str
) -> Plan:
    program, *args = shlex.split(line)
    given = {"RANKLAUNCH_METHOD": method} if method else {}
    there = {f"{helpers.CWD}/{name}": text for name, text in (files or {}).items()}
    return helpers.plan({**helpers.local(nodes, slots, node), **given, **env}, *args, program=program, files=there)


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("torchrun --nproc_per_node 2 train.py", "torchrun"),
        ("/opt/conda/bin/torchrun train.py", "torchrun"),
        ("accelerate launch --num_processes 2 train.py", "accelerate launch"),
        ("deepspeed --num_gpus 2 train.py", "deepspeed"),
        ("msrun --worker_num=2 train.py", "msrun"),
        ("mpirun -np 2 python train.py", "mpirun"),
        ("horovodrun -np 2 python train.py", "horovodrun"),
        ("python3.11 -u -W error -m torch.distributed.launch train.py", "python -m torch.distributed.launch"),
        ("python /opt/conda/bin/torchrun train.py", "torchrun"),
        ("env A=1 nice -n 5 torchrun train.py", "torchrun"),
        ("conda run -n mine python -m torch.distributed.run train.py", "python -m torch.distributed.run"),
        ("bash -ec 'cd /work && A=1 exec torchrun train.py | tee log'", "torchrun"),
        ("sh -c 'if test -e x; then torchrun train.py; fi'", "torchrun"),
        ("sh -c 'echo $(date'", ""),
        ("accelerate config", ""),
        ("env A=1 python train.py torchrun", ""),
        ("python train.py", ""),
        ("./mytrain torchrun", ""),
        ("bash train.sh torchrun", ""),
        ("env -i", ""),
        ("ranklaunch check", ""),
    ],
)
def test_a_launcher_runs_once(line: str, name: str) -> None:
    found = plan(line)
    assert (found.method, found.why.startswith(f"the program is {name},")) == (("plain", True) if name else ("torchrun", False))
    if name:
        assert [process.argv for process in found.processes] == [tuple(shlex.split(line))]


def test_a_launcher_of_more_ranks_than_slots_is_warned_of() -> None:
    (warning,) = plan("torchrun --nproc_per_node 8 train.py").warnings
    assert warning.startswith("`torchrun --nproc_per_node 8 train.py` starts 8 ranks on this node, which has 2 slots, by RANKLAUNCH_SLOTS")
    assert plan("torchrun --nproc_per_node 8 train.py", method="plain").warnings == ()


def test_a_module_that_is_a_launcher() -> None:
    found = helpers.plan(helpers.local(1, "2"), "train.py", program="torch.distributed.run", module=True)
    assert (found.method, found.processes[0].argv) == ("plain", ("python", "-u", "-m", "torch.distributed.run", "train.py"))


LINES = (*(f"{name} torchrun" for name in WRAPPERS), *(f"{name} -c torchrun" for name in SHELLS))


ROWS = {name: row for row in starters.shipped() for name in row.names if not row.same_job}


@helpers.for_each([*LINES, *ROWS])
def test_each_row_is_started_once(name: str) -> None:
    needed = ROWS[name].if_any[0] if name in ROWS and ROWS[name].if_any else ""
    words, env = (f"{name} {needed}", {}) if needed.startswith("-") else (name, {needed: "2"} if needed else {})
    assert plan(words, **env).method == "plain"
    assert plan("train.sh", files={"train.sh": f"set -e\n{words} x\n"}, **env).method == "plain"
    if needed:
        assert plan(name).method == "torchrun"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("torchrun --nproc_per_node 2 train.py --lr 1", ["without --nnodes", "--method torchrun -- train.py --lr 1"]),
        ("torchrun --nnodes=1 -m pkg.train", ["its --nnodes is 1", "ranklaunch run --method torchrun -- -m pkg.train"]),
        (f"torchrun --nnodes={'9' * 5000} train.py", ["its --nnodes is 999"]),
        ("accelerate launch train.py", ["without --num_machines", "--method accelerate -- train.py"]),
        ("deepspeed --hostfile h train.py", ["without --no_ssh", "--method deepspeed -- train.py"]),
        ("msrun --worker_num 4 train.py", ["without --master_addr", "--method msrun -- train.py"]),
        ("mpirun -np 4 python train.py", ["one starts the ranks of all nodes", "--method mpirun -- train.py"]),
        ("python -m paddle.distributed.launch train.py", ["without --nnodes", "ranklaunch run -- train.py"]),
        ("sh -c 'torchrun x'", ["without --nnodes", "PROGRAM"]),
        ("sh -c 'torchrun t.py $ARGS'", ["--method torchrun -- t.py ..."]),
    ],
)
def test_what_would_train_alone_on_each_of_several_nodes_is_refused(line: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        plan(line, nodes=2)
    assert len(caught.value.problems) == 1
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize(
    ("line", "env"),
    [
        ("torchrun --nnodes=2 --node-rank 0 --master-addr n0 train.py", {}),
        ("bash -c 'torchrun --nnodes $NODES train.py'", {}),
        ("torchrun train.py", {"PET_NNODES": "2", "PET_NODE_RANK": "0", "PET_MASTER_ADDR": "n0"}),
        ("torchrun --nnodes \u00b2 --nproc_per_node \u00b2 train.py", {}),
        ("accelerate launch --num-machines 2 train.py", {}),
        ("deepspeed --no_ssh --node_rank 0 train.py", {}),
        ("mpirun -np 4 python train.py", {"RANKLAUNCH_METHOD": "plain"}),
    ],
)
def test_one_that_knows_of_the_nodes_runs_on_each(line: str, env: dict[str, str]) -> None:
    found = plan(line, nodes=2, **env)
    assert (found.method, [process.argv for process in found.processes]) == ("plain", [tuple(shlex.split(line))])


@pytest.mark.parametrize("method", ["torchrun", "spawn", "mpirun", "deepspeed"])
def test_a_launcher_below_a_launcher_is_refused(method: str) -> None:
    with pytest.raises(
        ConfigError, match=rf"the program is torchrun.*RANKLAUNCH_METHOD={method} .*ranklaunch run --method torchrun -- t\.py"
    ):
        plan("torchrun t.py", method=method)


def test_secrets_in_the_line_to_write_are_hidden() -> None:
    with pytest.raises(ConfigError) as caught:
        plan("torchrun train.py --password hunter2", nodes=2)
    assert "hunter2" not in str(caught.value)


def test_what_the_platform_says_of_ranks_reaches_a_launcher_of_the_users() -> None:
    told = {"PET_NPROC_PER_NODE": "2", "RANK": "0", "RANKLAUNCH_SECRET": "x"}
    assert plan("torchrun train.py", **told).processes[0].unset == ("RANKLAUNCH_SECRET",)
    assert plan("train.sh", method="plain", **told).processes[0].unset == ("PET_NPROC_PER_NODE", "RANK", "RANKLAUNCH_SECRET")


@pytest.mark.parametrize("line", ["ranklaunch run train.py", "python -m ranklaunch run --job-name x train.py", "env ranklaunch run x"])
@pytest.mark.parametrize("method", ["", "plain", "spawn"])
def test_a_run_of_the_same_job_is_refused(line: str, method: str) -> None:
    with pytest.raises(ConfigError, match=re.compile("the program is .*ranklaunch run, which would start the same job.*ENTRYPOINT")):
        plan(line, method=method)


@pytest.mark.parametrize(
    "line", ["ranklaunch run --job-name a --log-dir=/a t.py", "env RANKLAUNCH_JOB_NAME=a ranklaunch run --log-dir /a t.py"]
)
def test_a_run_of_another_job_runs_once(line: str) -> None:
    assert plan(line).method == "plain"


# Ray

VERL = "python -m verl.trainer.main_ppo trainer.nnodes=2"
IN_A_SCRIPT = {"train.sh": f"set -x\n{VERL} data.path=$HOME/x\n"}
BOTH = {"train.sh": f'[ "$NODE_RANK" != 0 ] || ray start --head\n{VERL}\n'}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("ray symmetric-run --address n0:6379 -- python train.py --lr 1", "write ranklaunch run --method ray -- train.py --lr 1,"),
        ("ray start --head --port 6379", "write ranklaunch run --method ray -- PROGRAM [ARGS...],"),
        ("ray job submit -- python train.py", "write ranklaunch run --method ray -- train.py,"),
        ("bash -c 'ray start --head; python train.py'", "write ranklaunch run --method ray -- PROGRAM [ARGS...],"),
    ],
)
@pytest.mark.parametrize("nodes", [1, 2])
def test_a_second_cluster_of_ray_is_refused(line: str, words: str, nodes: int) -> None:
    with pytest.raises(ConfigError) as caught:
        plan(line, nodes=nodes, method="ray")
    (problem,) = caught.value.problems
    assert "its own cluster, and RANKLAUNCH_METHOD=ray starts one already: " in problem
    assert words in problem


@pytest.mark.parametrize("files", [{}, IN_A_SCRIPT])
@pytest.mark.parametrize(
    ("nodes", "method", "env", "expected"),
    [
        (1, "", {}, "plain"),
        (1, "ray", {}, "ray"),
        (2, "", {}, "ray"),
        (2, "ray", {}, "ray"),
        (2, "plain", {}, "plain"),
        (2, "", {"RAY_ADDRESS": "head:6379"}, "plain"),
    ],
)
def test_a_program_for_a_cluster_of_ray(files: dict[str, str], nodes: int, method: str, env: dict[str, str], expected: str) -> None:
    """Alone on each of several nodes the program would wait for devices that its own node has not."""
    line = "train.sh" if files else VERL
    found = plan(line, nodes=nodes, method=method, files=files, **env)
    assert (found.method, found.warnings) == (expected, ())
    if expected == "ray":
        words = ("bash", "train.sh") if files else tuple(VERL.split())
        assert [process.argv[-len(words) :] for process in found.processes] == [words]
        assert plan(line, nodes=2, node=1, method=method, files=files).processes == ()


def test_a_script_for_a_cluster_of_ray_finds_its_numbers() -> None:
    def told(line: str, **env: str) -> dict[str, str]:
        found = plan(line, nodes=2, method="ray", files=IN_A_SCRIPT, **env).processes[0].env
        return {name: found[name] for name in ("NNODES", "NPROC_PER_NODE", "GPUS_PER_NODE", "NODE_RANK") if name in found}

    assert told("train.sh") == {"NNODES": "2", "NPROC_PER_NODE": "2", "GPUS_PER_NODE": "2"}
    assert told("bash train.sh", GPUS_PER_NODE="1") == {"NNODES": "2", "NPROC_PER_NODE": "2"}
    assert told(VERL) == {}


def test_a_program_for_ray_below_another_method_is_refused() -> None:
    with pytest.raises(ConfigError, match=re.escape("write ranklaunch run --method ray -- -m verl.trainer.main_ppo [ARGS...],")):
        plan(VERL, nodes=2, method="spawn")


@pytest.mark.parametrize("method", ["", "ray"])
def test_a_script_that_starts_its_own_ray_runs_on_each_node(method: str) -> None:
    found = plan("train.sh", nodes=2, method=method, files=BOTH)
    assert found.method == "plain"
    assert len(found.warnings) == bool(method)


def test_a_job_of_ray_is_submitted_once() -> None:
    with pytest.raises(ConfigError, match=r"2 nodes, and the program is ray job, which each node would submit.*--method ray -- train\.py,"):
        plan("ray job submit -- python train.py", nodes=2)
    assert plan("ray job submit -- python train.py").method == "plain"


# Rows of the user's own


@helpers.for_each(
    [
        ("r.json", '[{"names": ["mytrain go"], "if_any": ["NPROC"]}]', "plain", {"NPROC": "2"}),
        ("r.json", '[{"names": ["mytrain go"], "if_any": ["NPROC"]}]', "torchrun", {}),
        ("r.json", '[{"names": ["mytrain go"], "if_none": ["NPROC"]}]', "torchrun", {"NPROC": "2"}),
        ("r.json", '[{"names": ["mytrain go"], "nodes": "--n"}]', "plain", {}),
    ]
)
def test_rows_of_the_users_own(name: str, text: str, method: str, env: dict[str, str]) -> None:
    assert plan("mytrain go x", files={name: text}, RANKLAUNCH_STARTERS_FILE=name, **env).method == method


def test_a_row_of_the_users_own_comes_first() -> None:
    files = {"r.json": '[{"names": ["torchrun"], "nodes": "--n"}]'}
    with pytest.raises(ConfigError, match="without --n each node would train alone"):
        plan("torchrun --nnodes 2 x", nodes=2, files=files, RANKLAUNCH_STARTERS_FILE="r.json")


@helpers.for_each(
    [
        (None, "no such file"),
        ("{", "Expecting property name"),
        ("{}", "expected a list of rows"),
        ("[1]", "row 1: expected names"),
        ('[{"names": ["a"]}, {"names": ["b"], "node_count": "x"}]', "row 2: unknown field 'node_count'"),
        ('[{"names": "a"}]', "row 1: names: expected a list of texts"),
        ('[{"names": ["a"], "nodes": 2}]', "row 1: nodes: expected a text"),
        ('[{"names": ["a"], "options": "mpi"}]', "row 1: options: expected torchrun"),
        ("[" * 100_000, "RANKLAUNCH_STARTERS_FILE='r.json': "),
    ]
)
def test_a_wrong_row_is_named(text: str | None, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        plan("mytrain", files={} if text is None else {"r.json": text}, RANKLAUNCH_STARTERS_FILE="r.json")
    assert said in str(caught.value)


def test_the_table_is_fresh() -> None:
    tool = places.module("tools/starters.py")
    assert tool.PATH.read_text(encoding="utf-8") == tool.made(), "run make generate"


def test_a_command_that_starts_ranks_is_told_where_it_is() -> None:
    found = plan("llamafactory-cli train c.yaml", nodes=2, node=1, slots="4,2")
    told = {"NNODES": "2", "NODE_RANK": "1", "NPROC_PER_NODE": "2", "MASTER_ADDR": "n0", "MASTER_PORT": "29500"}
    assert told.items() <= found.processes[0].env.items()
    assert found.why.endswith("starts ranks itself; only the run shows whether they are this node's ranks of the job")
    own = plan("swift sft", NPROC_PER_NODE="1", MASTER_PORT="1234", NNODES="7").processes[0].env
    assert (own.get("NPROC_PER_NODE"), own.get("MASTER_PORT"), own["NNODES"]) == (None, None, "1")
    assert not told.keys() & plan("train", nodes=2, method="plain").processes[0].env.keys()
