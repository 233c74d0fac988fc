"""What DeepSpeed's launcher is told, what is said of options that fight, what it cannot do, and what its words tell of a failure."""

from __future__ import annotations

import re

import helpers
import pytest

from ranklaunch.adapters.launchers import deepspeed
from ranklaunch.adapters.launchers.shared import deepspeed_remote
from ranklaunch.errors import ConfigError
from ranklaunch.plan.model import Plan, RankLog
from ranklaunch.verdict.model import Failure

H0 = "ma-job-5d2e7c1a-worker-0.ma-job-5d2e7c1a"


def plan(extra: str = "", nodes: int = 2, node: int = 1, *args: str, slots: int = 2, program: str = "train.py", **env: str) -> Plan:
    given = {"RANKLAUNCH_EXTRA_DEEPSPEED_PARAMS": extra, **env}
    return helpers.plan(helpers.modelarts(nodes, slots, node, **given), *args, program=program, method="deepspeed")


def argv(found: Plan) -> tuple[str, ...]:
    return found.processes[0].argv


@pytest.mark.parametrize(("grace_s", "extra", "halted_s"), [("25", "", 0), ("60", "", 28), ("60", "--autotuning=tune", 0)])
def test_a_grace_that_is_longer_than_its_own(grace_s: str, extra: str, halted_s: float) -> None:
    """launch.py kills ranks 30 s after it has told them to end, as it does when one of them has failed."""
    assert helpers.holds(plan(extra, 1, 0, RANKLAUNCH_GRACE_S=grace_s)) == (halted_s, halted_s)


LOGS = ("--enable_each_rank_log", "/logs/attempt_1/deepspeed")


@pytest.mark.parametrize("node", range(3))
def test_on_several_nodes(node: int) -> None:
    found = plan("", 3, node, "--epochs=3", "a b")
    where = ("--hostfile", "/logs/attempt_1/hostfile", "--no_ssh", "--node_rank", str(node), "--master_addr", H0, "--master_port", "29500")
    assert argv(found) == ("deepspeed", *where, *LOGS, "train.py", "--epochs=3", "a b")
    assert found.files[0].text == "".join(f"{host} slots=2\n" for host in helpers.hosts(3))
    assert found.processes[0].env.get("RANKLAUNCH_ATTEMPT") == "1"


@pytest.mark.parametrize(("kind", "option"), [("gpu", "--num_gpus"), ("npu", "--num_accelerators"), ("cpu", "--num_accelerators")])
def test_on_one_node_no_hostfile_of_an_image_counts(kind: str, option: str) -> None:
    found = plan("", 1, 0, RANKLAUNCH_ACCELERATOR=kind, RANKLAUNCH_MASTER_PORT="29400")
    assert argv(found) == ("deepspeed", "--hostfile", "/dev/null", option, "2", "--master_port", "29400", *LOGS, "train.py")
    assert found.files == ()


@pytest.mark.parametrize(
    ("program", "args", "words"),
    [
        ("train.py", ("-x",), ("train.py", "-x")),
        ("train.sh", ("-x",), ("--no_python", "--no_local_rank", "bash", "train.sh", "-x")),
        ("./train", ("-x",), ("--no_python", "--no_local_rank", "./train", "-x")),
        ("train.py", ("--", "-x", "--"), ("train.py", "--", "--", "--", "-x", "--")),
        ("train.sh", ("--", "-x"), ("--no_python", "--no_local_rank", "bash", "train.sh", "--", "-x")),
        ("./train", ("--",), ("--no_python", "--no_local_rank", "./train", "--", "--", "--")),
    ],
)
def test_programs(program: str, args: tuple[str, ...], words: tuple[str, ...]) -> None:
    """DeepSpeed's two parsers take away one `--` each, right behind the program."""
    assert argv(plan("", 2, 1, *args, program=program))[-len(words) - 1 :] == (LOGS[1], *words)


def test_module() -> None:
    env = {"PATH": "/usr/bin", "RANKLAUNCH_METHOD": "deepspeed", "RANKLAUNCH_SLOTS": "2"}
    found = helpers.call("plan", "--format", "json", "-m", "pkg.train", "--", "-x", env=env).json
    assert found["processes"][0]["argv"][-6:] == ["--module", "pkg.train", "--", "--", "--", "-x"]


@helpers.for_each(
    [
        ("", 2, []),
        ("--bind_cores_to_rank --bind_core_list 0-3", 2, []),
        ("--node_rank=1 --master_addr x", 2, ["its own --master_addr"]),
        ("--master_port=1", 2, ["its own --master_port"]),
        ("--master_port=1", 1, []),
        ("--num_nodes=2 --num_gpus 2", 2, []),
        ("-i localhost", 1, []),
        ("--launcher=slurm", 2, ["has --launcher"]),
        ("--force_multi", 1, ["has --force_multi"]),
        ("--elastic_training --min_elastic_nodes 1", 2, ["has --elastic_training"]),
        ("--save_pid", 2, ["--save_pid"]),
        ("-q", 2, ["has --quiet: DeepSpeed logs nothing"]),
    ]
)
def test_options_that_fight_are_named(extra: str, nodes: int, warnings: list[str]) -> None:
    said = plan(extra, nodes, nodes - 1).warnings
    assert all(any(word in text for text in said) for word in warnings), said
    assert len(said) == len(warnings)
    assert all("RANKLAUNCH_EXTRA_DEEPSPEED_PARAMS has" in text for text in said)


@pytest.mark.parametrize(
    ("extra", "nodes", "words"),
    [
        ("--node_rank 0", 2, ["--node_rank 0: expected 1"]),
        ("--node_r=2", 2, ["--node_rank 2: expected 1"]),
    ],
)
def test_options_that_contradict_the_plan_are_refused(extra: str, nodes: int, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        plan(extra, nodes, nodes - 1)
    assert all(word in str(caught.value) for word in ("RANKLAUNCH_EXTRA_DEEPSPEED_PARAMS has", *words)), caught.value


@helpers.for_each(
    [
        ({}, False),
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, False),
        ({"CUDA_VISIBLE_DEVICES": "4,5"}, False),
        ({"CUDA_VISIBLE_DEVICES": "4"}, True),
        ({"CUDA_VISIBLE_DEVICES": "4,4"}, True),
        ({"CUDA_VISIBLE_DEVICES": "GPU-1,GPU-2"}, True),
        ({"CUDA_VISIBLE_DEVICES": "4,5", "RANKLAUNCH_ACCELERATOR": "cpu"}, False),
        ({"CUDA_VISIBLE_DEVICES": "4,5", "RANKLAUNCH_EXTRA_DEEPSPEED_PARAMS": "--include localhost:4,5"}, False),
        ({"ASCEND_RT_VISIBLE_DEVICES": "4,5", "RANKLAUNCH_ACCELERATOR": "npu"}, False),
        ({"ASCEND_RT_VISIBLE_DEVICES": "4,5"}, False),
    ]
)
def test_devices_that_deepspeed_replaces_are_named(env: dict[str, str], warned: bool) -> None:
    said = plan(nodes=1, node=0, **{"RANKLAUNCH_ACCELERATOR": "gpu", **env}).warnings
    assert any(": DeepSpeed replaces it by 0,1" in text for text in said) == warned


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"CUDA_VISIBLE_DEVICES": "4,5"}, ["--include", "localhost:4,5"]),
        ({"CUDA_VISIBLE_DEVICES": "6, 4,7"}, ["--include", "localhost:6,4"]),
        ({"ASCEND_RT_VISIBLE_DEVICES": "4,5", "RANKLAUNCH_ACCELERATOR": "npu"}, ["--include", "localhost:4,5"]),
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, ["--num_gpus", "2"]),
        ({"CUDA_VISIBLE_DEVICES": "4"}, ["--num_gpus", "2"]),
        ({"CUDA_VISIBLE_DEVICES": "4,5", "RANKLAUNCH_ACCELERATOR": "cpu"}, ["--num_accelerators", "2"]),
        ({"CUDA_VISIBLE_DEVICES": "4,5", "RANKLAUNCH_EXTRA_DEEPSPEED_PARAMS": "--num_gpus 2"}, ["--num_gpus", "2"]),
    ],
)
def test_devices_that_are_chosen(env: dict[str, str], words: list[str]) -> None:
    (process,) = plan(nodes=1, node=0, **{"RANKLAUNCH_ACCELERATOR": "gpu", **env}).processes
    assert list(process.argv[3:5]) == words
    assert any(name.endswith("VISIBLE_DEVICES") for name in process.unset) == (words[0] == "--include")


def test_devices_that_are_chosen_on_several_nodes_are_not_known_of_the_others() -> None:
    found = plan(nodes=2, node=0, RANKLAUNCH_ACCELERATOR="gpu", CUDA_VISIBLE_DEVICES="4,5")
    assert "--include" not in found.processes[0].argv
    assert any("DeepSpeed replaces it by 0,1" in text for text in found.warnings)


def test_a_rank_table_is_not_used_and_that_is_said() -> None:
    found = plan(RANK_TABLE_FILE="/user/config")
    assert found.warnings == ("method deepspeed does not use the rank table /user/config/jobstart_hccl.json",)
    assert "RANK_TABLE_FILE" in found.processes[0].unset


def test_ranks_write_files_of_their_own() -> None:
    found = plan()
    assert found.outputs
    assert found.outputs.folder == LOGS[1]
    assert found.outputs.logs == tuple(RankLog(str(rank), rank, f"/logs/attempt_1/rank_{rank}.log", f"[rank {rank}] ") for rank in (2, 3))
    match = re.fullmatch(found.outputs.pattern, "20261121102904_rank3.log")
    assert match
    assert match[1] == "3"
    assert (found.processes[0].rank, found.processes[0].behaviour, helpers.launcher(found).DEPTH) == (None, "deepspeed", 2)


@pytest.mark.parametrize("extra", ["--enable_each_rank_log=/x", "--elastic_training"])
def test_where_the_ranks_of_the_plan_are_not_known_they_share_one_output(extra: str) -> None:
    found = plan(extra)
    assert found.outputs is None
    assert LOGS[1] not in argv(found)
    assert not helpers.launcher(found).kills_ranks
    assert bool(helpers.launcher(found).STARTS) is bool(found.kept) is ("log" in extra)  # whose numbers may be known all the same


@pytest.mark.parametrize("slots", ["2,1,3", "1,1,1,1", "4,2,3", "2,4,3"])
def test_slots_that_differ_without_harm(slots: str) -> None:
    nodes = slots.count(",") + 1
    if slots == "2,4,3":
        with pytest.raises(ConfigError, match="rank 2, the first of node 1"):
            plan(nodes=nodes, RANKLAUNCH_SLOTS=slots)
        return
    assert plan(nodes=nodes, RANKLAUNCH_SLOTS=slots).files[0].text.split()[1::2] == [f"slots={n}" for n in slots.split(",")]


def test_slots_that_differ_with_harm_are_refused() -> None:
    """With 3 and 2, rank 3 would have LOCAL_RANK 1 and rank 4 LOCAL_RANK 0."""
    with pytest.raises(ConfigError) as caught:
        plan(RANKLAUNCH_SLOTS="3,2")
    assert f"rank 3, the first of node 1 ({helpers.hosts(2)[1]}), would have LOCAL_RANK 1" in str(caught.value)
    assert "--method torchrun or spawn" in str(caught.value)


def test_hosts_that_a_hostfile_cannot_have_are_refused() -> None:
    with pytest.raises(ConfigError, match="same is the host of several nodes"):
        plan(VC_WORKER_HOSTS="same,same")


@pytest.mark.parametrize("node", range(3))
def test_hosts_that_nobody_names_stand_in_the_hostfile_by_their_index(node: int) -> None:
    """Its launcher on each node takes the slots of the line that its --node_rank counts, and connects to none of these names."""
    found = helpers.plan(helpers.only_first_named(3, 2, node), method="deepspeed", log_dir="/logs")
    assert found.files[0].text == "bert-master-0 slots=2\nunnamed-1 slots=2\nunnamed-2 slots=2\n"
    assert argv(found)[argv(found).index("--node_rank") + 1] == str(node)
    assert [each.host for each in found.job.nodes] == ["bert-master-0", "", ""]


def test_from_node_0_all_hosts_are_needed() -> None:
    with pytest.raises(ConfigError) as caught:
        helpers.plan(helpers.only_first_named(3, 2, 1, RANKLAUNCH_DEEPSPEED_LAUNCHER="pdsh"), method="deepspeed")
    (problem,) = caught.value.problems
    assert problem.startswith(
        "nodes 1 to 2 have no names, and method deepspeed with RANKLAUNCH_DEEPSPEED_LAUNCHER=pdsh needs the names of all"
    )
    assert "name them by --hosts (RANKLAUNCH_HOSTS)" in problem


@pytest.mark.parametrize("extra", ["'open", 'a "b', "a\\"])
def test_extra_parameters_that_are_no_words_are_refused(extra: str) -> None:
    with pytest.raises(ConfigError, match=r"RANKLAUNCH_EXTRA_DEEPSPEED_PARAMS=.*expected shell words"):
        plan(extra)


@pytest.mark.parametrize(
    ("text", "folder"),
    [
        ('{"autotuning": {"enabled": true, "results_dir": "found/here"}}', "/workspace/found/here"),
        ('{"autotuning": {"results_dir": "/data/found"}}', "/data/found"),
        ('{"autotuning": {"enabled": true}}', "/workspace/autotuning_results"),
        ("// not JSON but hjson", "/workspace/autotuning_results"),
        ("[]", "/workspace/autotuning_results"),
    ],
)
@pytest.mark.parametrize("args", [("--deepspeed", "--deepspeed_config", "ds.json"), ("--deepspeed=ds.json",)])
def test_what_autotuning_has_found_is_shown(text: str, folder: str, args: tuple[str, ...]) -> None:
    env = {**helpers.modelarts(1, 2, 0), "RANKLAUNCH_EXTRA_DEEPSPEED_PARAMS": "--autotuning run"}
    found = helpers.plan(env, *args, files={"/workspace/ds.json": text}, method="deepspeed")
    assert found.shows == (f"{folder}/summary.txt", f"{folder}/ds_config_optimal.json")
    assert found.outputs is None
    assert (found.processes[0].behaviour, helpers.launcher(found).DEPTH) == ("deepspeed.autotuning", 3)


# Elastic training


def test_elastic_training_on_one_node_has_the_address_that_it_asserts() -> None:
    words = " ".join(argv(plan("--elastic_training", 1, 0)))
    assert "--hostfile /dev/null --num_accelerators 2 --master_addr 127.0.0.1 --master_port 29500 --elastic_training train.py" in words
    words = " ".join(argv(plan("--elastic_training", 1, 0, program="train.sh")))
    assert words.endswith("--no_python bash train.sh")  # it refuses --no_local_rank, and gives none


def test_elastic_training_on_several_nodes_waits_for_all_of_them_and_says_so() -> None:
    found = plan("--elastic_t --min_e 1 --max_elastic_nodes=4", 3, 0)
    assert "--elastic_t --min_e 1 --max_elastic_nodes=4 train.py" in " ".join(argv(found))
    assert "DeepSpeed could run with fewer nodes, but the muster waits for all 3, and a lost node ends the job" in found.warnings[0]
    assert not plan("--elastic_training", 1, 0).warnings[0].count("muster")
    assert [wait.what for wait in found.waits if wait.kind == "muster"] == [f"3 nodes at {H0}:18889"]


@helpers.for_each(
    [
        ("--elastic_training --min_elastic_nodes 3", "--min_elastic_nodes 3: expected at most 2"),
        ("--elastic_training --max_elastic_nodes 1", "--max_elastic_nodes 1: expected at least 2"),
    ]
)
def test_elastic_training_that_could_not_start_is_refused(extra: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        plan(extra)
    assert f"PARAMS has --elastic_training: {said}" in str(caught.value)


def test_elastic_training_that_no_agent_hears_of_is_refused() -> None:
    with pytest.raises(ConfigError, match="DeepSpeed passes it to the nodes only with pdsh"):
        remotely("openmpi", extra="--elastic_training")


def test_nothing_is_tuned_on_several_nodes_each_for_itself() -> None:
    with pytest.raises(ConfigError, match="--autotuning: one DeepSpeed on each of 2 nodes would tune for itself"):
        plan("--autotuning tune")


# From node 0


def remotely(by: str, node: int = 0, *args: str, nodes: int = 3, program: str = "train.py", extra: str = "", **env: str) -> Plan:
    return plan(extra, nodes, node, *args, program=program, HOME="/root", RANKLAUNCH_DEEPSPEED_LAUNCHER=by, **env)


@pytest.mark.parametrize("by", ["pdsh", "openmpi", "mpich", "impi", "mvapich", "slurm"])
def test_from_node_0(by: str) -> None:
    found = remotely(by, 0, "-x")
    where = ("--hostfile", "/logs/attempt_1/hostfile", "--launcher", by, "--no_ssh_check", "--master_addr", H0, "--master_port", "29500")
    assert argv(found)[: len(where) + 1] == ("deepspeed", *where)
    assert argv(found)[-2:] == ("train.py", "-x")
    others = [remotely(by, node, "-x") for node in (1, 2)]
    assert all(not other.processes and other.followers == 2 for other in (*others,))
    assert [bool(each.services) for each in (found, *others)] == [by != "slurm"] * 3
    assert found.outputs is None
    assert found.processes[0].behaviour == {"openmpi": "deepspeed.openmpi"}.get(by, "deepspeed.node_0")


def test_by_mpich_each_rank_says_how_it_ends() -> None:
    """DeepSpeed's helper ends with 0 in any case."""

    def words(program: str, *args: str) -> tuple[str, ...]:
        given = argv(remotely("mpich", 0, *args, program=program))
        at = next(i for i, word in enumerate(given) if word.endswith("/programs/end_as_rank.py"))
        assert given[at - 1] == "29500"  # a Python program to DeepSpeed, whatever it runs
        return given[at + 1 :]

    assert words("train.py", "--", "-x") == ("--python", "train.py", "--", "-x")
    assert words("train.sh", "-x") == ("bash", "train.sh", "-x")
    assert words("./train", "-x") == ("./train", "-x")
    assert deepspeed.report("some words\nrank 3 exits with return code = 42\nothers\n") == Failure(3, 42)
    assert deepspeed.report("rank 3 exits with return code = -9\n") == Failure(3, 137, 9)


def test_by_slurm_its_srun_goes_beside_the_one_that_has_started_this() -> None:
    started = {"SLURM_CPU_BIND": "quiet,mask_cpu:0x1", "SLURM_CPU_BIND_LIST": "0x1", "SLURM_NNODES": "3", "SLURM_NTASKS_PER_NODE": "1"}
    process = remotely("slurm", **started).processes[0]
    told = {name: value for name, value in process.env.items() if name.startswith("SLURM_")}
    assert told == {
        "SLURM_NNODES": "3", "SLURM_NTASKS_PER_NODE": "2", "SLURM_OVERLAP": "1", "SLURM_OVERCOMMIT": "1", "SLURM_KILL_BAD_EXIT": "1",
    }  # fmt: skip
    assert {"SLURM_CPU_BIND", "SLURM_CPU_BIND_LIST"} <= {*process.unset}
    assert not {"SLURM_NTASKS_PER_NODE", "SLURM_NNODES"} & {*process.unset}
    assert "SLURM_KILL_BAD_EXIT" not in remotely("slurm", **started, SLURM_KILL_BAD_EXIT="0").processes[0].env


@helpers.for_each(
    [
        ("h2: task 3: Exited with exit code 42\nsrun: error: h0: tasks 0-1: Terminated", Failure(3, 42)),
        ("h2: tasks 2-3: Killed", Failure(2, 137, 9)),
        ("h0: task 0: Segmentation fault (core dumped)", Failure(0, 139, 11)),
        ("h0: task 0: Floating point exception (core dumped)", Failure(0, 136, 8)),
        ("h0: task 0: Trace/breakpoint trap (core dumped)", Failure(0, 133, 5)),
        ("h0: task 0: User defined signal 1", Failure(0, 138, 10)),
        ("h0: task 0: Out Of Memory", Failure(0, 137, 9)),
        ("h0: task 0: Exited with exit code 0", None),
        ("h0: task 0: unknown", None),
        ("Node failure on h2\nsrun: error: h0: tasks 0-1: Killed", Failure(None, 137, name="srun's step", host="h2")),
        ("Node failure on h[12-13,17]", Failure(None, 137, name="srun's step", host="h[12-13,17]")),
        ("h0: task 0: Exited with exit code 3\nsrun: error: Node failure on h2", Failure(0, 3)),
        ("Unable to create step for job 1: More processors requested than permitted", None),
    ]
)
def test_what_srun_says_of_a_task(said: str, failure: Failure | None) -> None:
    assert deepspeed.report(f"some words\nsrun: error: {said}\nsrun: Force Terminated StepId=1.1\n") == failure


STARTED = "h1: [2026-11-26 15:38:52,130] [INFO] [launch.py:164:main] nnodes=2, num_local_procs=2, node_rank=1\n"
ENDED = "[2026-11-26 15:38:56,135] [ERROR] [launch.py:259:sigkill_handler] ['python', 'train.py'] exits with return code ="


@helpers.for_each(
    [
        (
            f"{STARTED}pdsh@h0: h1: ssh exited with exit code 255\nh0: {ENDED} -15\n",
            Failure(None, 137, 9, node=1, name="launch.py", host="h1"),
        ),
        (
            f"{STARTED}h1: [INFO] [launch.py:262:sigkill_handler] Main process received SIGTERM, exiting\nh0: {ENDED} -15\n",
            Failure(None, 143, 15, node=1, name="launch.py", host="h1"),
        ),
        (f"h1: No module named deepspeed\npdsh@h0: h1: ssh exited with exit code 1\nh0: {ENDED} -15\n", Failure(None, 1, host="h1")),
        (f"pdsh@h0: h1: ssh exited with exit code 255\nh0: {ENDED} -15\n", Failure(None, 255, name="ssh to launch.py", host="h1")),
        (f"{STARTED}h1: {ENDED} 42\npdsh@h0: h1: ssh exited with exit code 42\n", Failure(None, 42, node=1)),
        (f"{STARTED}h1: pdsh@h0: h1: ssh exited with exit code 9\n", None),  # a program's own words
    ]
)
def test_what_pdsh_says_of_a_node(said: str, failure: Failure | None) -> None:
    assert deepspeed.report(said) == failure


def test_every_ssh_is_the_jobs_own() -> None:
    found = remotely("pdsh", RANKLAUNCH_RUN_DIR="/run/job")
    file = next(file for file in found.files if file.path.endswith("/ssh"))
    assert file.mode == "0700"
    assert file.text.startswith("#!/bin/sh\nexec /usr/bin/ssh -F /run/job/")
    private = file.path.rpartition("/")[0]
    assert found.processes[0].env["PATH"].split(":")[:2] == [f"{private}/runner", private]
    assert [wait.kind for wait in found.waits if wait.kind in ("hosts", "port")] == ["hosts", "port"]


@helpers.for_each([("pdsh", "pdsh"), ("openmpi", "mpirun"), ("mpich", "mpirun"), ("slurm", "srun")])
def test_what_the_runner_starts_tells_how_it_ended(by: str, name: str) -> None:
    found = remotely(by, RANKLAUNCH_RUN_DIR="/run/job")
    (file,) = (file for file in found.files if "/runner/" in file.path)
    folder = file.path.rpartition("/")[0]
    assert (file.path, helpers.launcher(found).proof, found.private) == (f"{folder}/{name}", f"{folder}/end", folder[: -len("/runner")])
    rest = found.processes[0].env["PATH"].partition(":")[2]  # without this folder, so that it does not find itself
    assert file.text == f'#!/bin/sh\nPATH={rest}\necho begun > {folder}/end\n{name} "$@"\ncode=$?\necho $code > {folder}/end\nexit $code\n'


def test_a_tuner_kills_what_it_has_started_itself() -> None:
    """Its pkill ends with 1 on a node where nothing is left: that is no failure of a rank."""
    found = remotely("pdsh", RANKLAUNCH_EXTRA_DEEPSPEED_PARAMS="--autotuning run")
    assert not helpers.launcher(found).proof
    line = "pdsh@h0: h1: ssh exited with exit code 1"
    assert not any(re.search(pattern, line) for pattern in helpers.launcher(found).ENDS_RANKS)
    assert any(re.search(pattern, line) for pattern in helpers.launcher(remotely("pdsh")).ENDS_RANKS)
    assert not any("/runner/" in file.path for file in found.files)


@helpers.for_each([("-H /x", 2), ("--hostf=/x", 1)])
def test_a_hostfile_of_deepspeeds_own_is_refused(extra: str, nodes: int) -> None:
    with pytest.raises(ConfigError) as caught:
        plan(extra, nodes, 0)
    assert "PARAMS has --hostfile /x: DeepSpeed gets the nodes of this job; remove it, or set --hostfile" in str(caught.value)


def forwarded(found: Plan) -> dict[str, str]:
    text = next(file.text for file in found.files if file.path.endswith("/deepspeed_env"))
    return dict(line.split("=", 1) for line in text.splitlines())


@pytest.mark.parametrize(
    ("by", "extra", "env", "place"),
    [
        ("openmpi", "", {}, (H0, "29500")),
        ("mvapich", "", {"RANKLAUNCH_MASTER_PORT": "1234", "MASTER_ADDR": "left.behind", "MASTER_PORT": "1"}, (H0, "1234")),
        ("openmpi", "--master_a h --master_port=7", {}, (H0, "29500")),  # of the runner alone
        ("mpich", "", {}, (None, None)),  # by DeepSpeed itself, as with impi
        ("impi", "", {}, (None, None)),
    ],
)
def test_ranks_by_mpi_know_where_to_meet(by: str, extra: str, env: dict[str, str], place: tuple[str | None, str | None]) -> None:
    told = forwarded(remotely(by, extra=extra, **env))
    assert (told.get("MASTER_ADDR"), told.get("MASTER_PORT")) == place


def test_what_the_ranks_get_of_the_environment() -> None:
    """DeepSpeed puts what is not plain between double quotes, and shows it all on the console."""
    env = {
        "DATA": "/data/a b",
        "COST": '5$ "x" `y` \\ 10%',
        "LINES_": "a\nb",
        "MY_TOKEN": "s3cret",
        "RANK": "3",
        "PLAIN": "a,b=c",
        "PADDED": " x",
    }
    found = remotely("pdsh", **env)
    told = forwarded(found)
    assert told["DATA"] == "/data/a b"
    assert told["COST"] == '5\\$ \\"x\\" \\`y\\` \\\\ 10%%'
    assert told["PLAIN"] == "a,b=c"
    assert told["RANKLAUNCH_ATTEMPT"] == "1"
    assert not {"LINES_", "PADDED", "MY_TOKEN", "RANK", "HOME", "VC_TASK_INDEX"}.intersection(told)
    assert any("do not get MY_TOKEN" in text for text in found.warnings)
    assert any("do not get LINES_, PADDED" in text for text in found.warnings)
    assert not any("s3cret" in text for text in (*found.warnings, *(file.text for file in found.files)))


def test_by_mpi_only_plain_values_arrive() -> None:
    found = remotely("openmpi", DATA="/data/a b", PLAIN="a,b=c")
    assert forwarded(found)["PLAIN"] == "a,b=c"
    assert "DATA" not in forwarded(found)


@pytest.mark.parametrize("word", ["it's", "$HOME", "a;b", "100%", "", "a\nb", 'say "hi"', "*"])
def test_arguments_that_pdsh_would_harm_are_refused(word: str) -> None:
    with pytest.raises(ConfigError, match="would be changed on the way"):
        remotely("pdsh", 0, word)
    assert word in argv(remotely("openmpi", 0, word))


@pytest.mark.parametrize("by", ["mpich", "impi", "mvapich", "slurm", "pdsh"])
def test_slots_that_differ_are_refused_where_deepspeed_cannot(by: str) -> None:
    with pytest.raises(ConfigError, match="slots"):
        remotely(by, RANKLAUNCH_SLOTS="3,2,2")
    assert remotely("openmpi", RANKLAUNCH_SLOTS="3,2,2").files


def test_slurm_starts_python_files_only() -> None:
    with pytest.raises(ConfigError, match="starts only Python files"):
        remotely("slurm", program="train.sh")


def test_an_unknown_launcher_is_named() -> None:
    with pytest.raises(ConfigError, match=r"RANKLAUNCH_DEEPSPEED_LAUNCHER='pdhs'.*did you mean 'pdsh'"):
        remotely("pdhs")


def test_on_one_node_nothing_is_reached() -> None:
    assert not remotely("pdsh", nodes=1).services


def test_several_nodes_are_tuned_by_pdsh() -> None:
    found = remotely("pdsh", extra="--autotuning tune")
    assert found.shows[0] == "/workspace/autotuning_results/summary.txt"
    assert remotely("pdsh", 1, extra="--autotuning tune").shows == ()


# What launch.py says. The text is that of DeepSpeed 0.19.8.


def last_words(code: int) -> str:
    return (
        "[2026-11-21 10:28:23,706] [INFO] [launch.py:253:sigkill_handler] Killing subprocess 30799\n"
        "[2026-11-21 10:28:23,707] [INFO] [launch.py:253:sigkill_handler] Killing subprocess 30800\n"
        "[2026-11-21 10:28:23,723] [ERROR] [launch.py:259:sigkill_handler] "
        f"['/usr/bin/python3.11', '-u', 'rank.py', '--local_rank=1'] exits with return code = {code}\n"
    )


def through_pdsh(host: str, node: int, text: str) -> str:
    begin = f"[2026-11-21 10:28:21,638] [INFO] [launch.py:158:main] nnodes=3, num_local_procs=2, node_rank={node}\n"
    return "".join(f"{host}: {line}" for line in (begin + text).splitlines(keepends=True))


@helpers.for_each(
    [
        (last_words(42), Failure(None, 42)),
        (last_words(-9), Failure(None, 137, 9)),
        (last_words(-15), Failure(None, 143, 15)),
        (last_words(1).replace("\n", "\r\n"), Failure(None, 1)),
        (through_pdsh("h1", 1, last_words(7)) + through_pdsh("h0", 0, last_words(-15)), Failure(None, 7, node=1)),
        (through_pdsh("h1.job", 1, "") + through_pdsh("h1", 2, last_words(7)), Failure(None, 7, node=2)),
        (through_pdsh("h1", 1, last_words(7)).partition("\n")[2], Failure(None, 7)),
        (last_words(3) + last_words(1), Failure(None, 1)),  # the first of one that a rank had started
        ("", None),
        ("Traceback (most recent call last):\nValueError: Hostfile is empty\n", None),
        ("he exits with return code = unknown\n", None),
    ]
)
def test_its_last_words(tail: str, expected: Failure | None) -> None:
    assert deepspeed.report(tail) == expected


def test_its_last_words_cut_anywhere() -> None:
    whole = last_words(-9)
    for at in range(len(whole)):
        assert deepspeed.report(whole[at:]) in (None, Failure(None, 137, 9))
        deepspeed.report(whole[:at])


def test_ranks_that_it_starts_are_known_by_pid() -> None:
    line = "[2026-11-21 10:28:21,654] [INFO] [launch.py:245:main] process 30799 spawned with command: ['python', '-u', 'rank.py']"
    found = re.search(helpers.launcher(plan()).STARTS, line)
    assert found
    assert found["pid"] == "30799"
    assert any(re.search(pattern, last_words(1)) for pattern in helpers.launcher(plan()).ENDS_RANKS)


@pytest.mark.parametrize(
    ("line", "fails"),
    [
        ("h1: [2026-11-26 17:51:37,163] [INFO] [launch.py:253:sigkill_handler] Killing subprocess 178", True),
        ("[2026-11-26 17:51:37,228] [ERROR] [launch.py:259:sigkill_handler] ['python', '-u', 'a.py'] exits with return code = 1", True),
        ("pdsh@h0: h1: ssh exited with exit code 1", True),
        ("h1: of the last try: pdsh@h0: h1: ssh exited with exit code 1", False),
        ("h1: reading the log: ssh exited with exit code 1", False),
        ("Killing subprocess 12 of the data service, which is not needed any more", False),
        ("the tokenizer exits with return code = 0", False),
    ],
)
def test_what_ranks_say_in_the_output_that_they_share_is_no_failure(line: str, fails: bool) -> None:
    said = f"step 3\n{line}\nstep 4\n"
    assert any(re.search(pattern, said, re.MULTILINE) for pattern in (*deepspeed.FAILING, *deepspeed_remote.FAILING)) == fails
