"""What torchrun is told, what is said of options that fight, and what its last words tell of the rank that failed first."""

from __future__ import annotations

import re

import helpers
import pytest

from ranklaunch.adapters.launchers import torchrun
from ranklaunch.errors import ConfigError
from ranklaunch.plan.model import Plan, RankLog, RankOutputs
from ranklaunch.verdict.model import Failure


def plan(extra: str = "", nodes: int = 2, node: int = 1, **env: str) -> Plan:
    given = {"MA_EXTRA_TORCHRUN_PARAMS": extra, **env}
    return helpers.plan(helpers.modelarts(nodes, 2, node, **given), method="torchrun")


@helpers.for_each(
    [
        ("", 2, []),
        ("--rdzv_conf=timeout=7200 --max-restarts=1", 1, ["--max_restarts"]),
        ("--rdzv_conf timeout=7200", 2, []),
        ("--nnodes=2 --nnodes=2:2 --nproc-per-node 2 --node_rank=1", 2, []),
        ("--nproc_per_node=gpu", 2, ["counts the devices itself"]),
        ("--master-addr=x --master-port=1", 2, ["its own --master_addr", "its own --master_port"]),
        ("--master_port=1", 1, ["picks a free port itself"]),
        ("--rdzv_backend=c10d", 2, ["torchrun's own order", "--rdzv_endpoint=ma-job-5d2e7c1a-worker-0.ma-job-5d2e7c1a:18888 is needed"]),
        ("--rdzv-backend c10d --rdzv-endpoint=x:1", 2, ["torchrun's own order"]),
        ("--rdzv_backend=etcd-v2 --rdzv_endpoint=e:2379", 2, ["--rdzv_backend=etcd-v2: ranks follow torchrun's own order"]),
        ("--rdzv_backend etcd", 2, ["--rdzv_backend=etcd: ranks follow torchrun's own order"]),
        ("--rdzv_backend=zeus", 1, []),
        ("--rdzv_backend=static", 2, []),
        ("--standalone", 1, []),
        ("--max_restarts=3", 2, ["--max_restarts"]),
        ("--max-r 3 --rdzv-b c10d --rdzv-end x:1", 2, ["--max_restarts", "torchrun's own order"]),
        ("--master_a x", 2, ["its own --master_addr"]),
    ]
)
def test_options_that_fight_are_named(extra: str, nodes: int, warnings: list[str]) -> None:
    said = plan(extra, nodes, nodes - 1).warnings
    assert all(any(word in text for text in said) for word in warnings), said
    assert len(said) <= len(warnings)
    assert all("MA_EXTRA_TORCHRUN_PARAMS" in text or "picks a free port" in text for text in said)


@pytest.mark.parametrize("method", ["torchrun", "megatron"])
@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ("--nproc_per_node=1", ["--nproc_per_node 1", "expected 2", "RANKLAUNCH_SLOTS"]),
        ("--nproc-per-node 1", ["--nproc_per_node 1", "expected 2"]),
        ("--nproc 4", ["--nproc_per_node 4", "expected 2"]),
        ("--nproc_per_node=unknown", ["--nproc_per_node unknown, which torchrun refuses: expected 2, the ranks", "RANKLAUNCH_SLOTS"]),
        ("--nproc_per_node=2 --nproc_per_node=1", ["--nproc_per_node 1"]),
        ("--nnodes=1 --node-rank=0", ["--nnodes 1: expected 2", "--node_rank 0: expected 1"]),
        ("--nnodes=1:2", ["--nnodes 1:2: expected 2"]),
        ("--standalone", ["--standalone", "2 nodes"]),
        ("--stand", ["--standalone", "2 nodes"]),
        ("--nn=1 --node-r 0", ["--nnodes 1: expected 2", "--node_rank 0: expected 1"]),
    ],
)
def test_options_that_contradict_the_plan_are_refused(method: str, extra: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        helpers.plan(helpers.modelarts(2, 2, 1, MA_EXTRA_TORCHRUN_PARAMS=extra), method=method)
    assert len(caught.value.problems) == len(extra.replace("=2 ", "").split(" --"))
    assert all(word in str(caught.value) for word in ("MA_EXTRA_TORCHRUN_PARAMS has", *words)), caught.value


@pytest.mark.parametrize("method", ["torchrun", "megatron", "accelerate"])
@pytest.mark.parametrize(("nodes", "seconds"), [(1, 30), (2, 330)])
def test_it_may_go_on_without_ranks_as_long_as_it_waits_for_other_nodes(method: str, nodes: int, seconds: float) -> None:
    assert helpers.launcher(helpers.plan(helpers.modelarts(nodes, 2), method=method)).lonely_s == seconds


def test_with_restarts_of_its_own_it_goes_on_after_a_failure() -> None:
    assert helpers.launcher(plan()).ENDS_RANKS == (torchrun.CLOSING,)
    restarting = helpers.launcher(plan("--max-restarts=1"))
    assert (restarting.ENDS_RANKS, restarting.lonely_s) == ((), 0)


@pytest.mark.parametrize("method", ["torchrun", "megatron", "accelerate"])
def test_dollars_are_doubled_for_torch_which_halves_them(method: str) -> None:
    found = helpers.plan(helpers.modelarts(1, 2), "$HOME", "$$", "${local_rank}", program="a$b.py", method=method)
    assert found.processes[0].argv[-4:] == ("a$$b.py", "$$HOME", "$$$$", "$${local_rank}")
    assert found.job.program.args == ("$HOME", "$$", "${local_rank}")


@pytest.mark.parametrize(
    ("extra", "prefix", "first"),
    [
        ("--virtual-local-rank", "nice", ["--ranklaunch-local-rank=${local_rank}", "a$$b"]),
        ("--virtual", "nice", ["--ranklaunch-local-rank=${local_rank}", "a$$b"]),
        ("--virtual-local-rank", "", ["a$$b"]),
        ("", "nice", ["a$$b"]),
    ],
)
@pytest.mark.parametrize("method", ["torchrun", "megatron"])
def test_what_stands_before_a_rank_learns_its_number_from_torchs_macro(method: str, extra: str, prefix: str, first: list[str]) -> None:
    """Where LOCAL_RANK is 0 for all."""
    env = helpers.modelarts(1, 2, RANKLAUNCH_RANK_PREFIX=prefix, MA_EXTRA_TORCHRUN_PARAMS=extra)
    found = helpers.plan(env, "a$b", method=method)
    argv = found.processes[0].argv
    assert list(argv[-len(first) :]) == first
    assert argv[-len(first) - 1].endswith(".py")
    assert found.job.program.args == ("a$b",)


def test_the_variable_that_was_read_is_the_one_that_is_named() -> None:
    (said,) = plan("--tee 3", RANKLAUNCH_EXTRA_TORCHRUN_PARAMS="--master_addr=x").warnings
    assert said.startswith("RANKLAUNCH_EXTRA_TORCHRUN_PARAMS has")


def test_a_rank_table_is_not_used_and_that_is_said() -> None:
    found = plan(RANK_TABLE_FILE="/user/config")
    assert found.warnings == ("method torchrun does not use the rank table /user/config/jobstart_hccl.json",)
    assert "RANK_TABLE_FILE" in found.processes[0].unset


def test_ranks_write_files_of_their_own() -> None:
    found = plan()
    logs = (RankLog("0", 2, "/logs/attempt_1/rank_2.log", "[rank 2] "), RankLog("1", 3, "/logs/attempt_1/rank_3.log", "[rank 3] "))
    assert found.outputs == RankOutputs("/logs/attempt_1/torchrun/node_1", torchrun.OWN_LOGS, logs)
    assert found.processes[0].env["PET_LOG_DIR"] == "/logs/attempt_1/torchrun/node_1"
    assert found.processes[0].env["PET_REDIRECTS"] == "3"
    assert found.processes[0].rank is None


@pytest.mark.parametrize(
    "extra", ["--log_dir=/x", "--log-dir /x", "--redirects=3", "--tee 3", "-r 3", "-t 3", "-r3", "--red 3", "--log-d /x"]
)
def test_where_ranks_write_is_the_users_choice(extra: str) -> None:
    found = plan(extra)
    assert found.outputs is None
    assert not any(name.startswith("PET_") for name in found.processes[0].env)


@pytest.mark.parametrize(("backend", "known"), [("static", True), ("c10d", False), ("etcd-v2", False)])
def test_ranks_of_a_node_are_known_by_the_static_rendezvous_alone(backend: str, known: bool) -> None:
    assert bool(plan(f"--rdzv_backend={backend}").outputs) is known


@pytest.mark.parametrize(
    ("env", "rank", "master", "warned"),
    [
        ({"ROUTE_PLAN": "true", "RANK_AFTER_ACC": "3", "MA_MASTER_INDEX": "2"}, 3, 2, True),
        ({"ROUTE_PLAN": "true", "RANK_AFTER_ACC": "0", "MA_MASTER_INDEX": "1"}, 0, 1, True),
        ({"ROUTE_PLAN": "false", "RANK_AFTER_ACC": "3", "MA_MASTER_INDEX": "2"}, 1, 0, False),
        ({"RANK_AFTER_ACC": "3", "MA_MASTER_INDEX": "2"}, 1, 0, False),
        ({"ROUTE_PLAN": "true"}, 1, 0, True),
        ({"ROUTE_PLAN": "true", "RANK_AFTER_ACC": "1"}, 1, 0, False),
    ],
)
def test_route_plan(env: dict[str, str], rank: int, master: int, warned: bool) -> None:
    found = plan(nodes=4, **env)
    argv = found.processes[0].argv
    assert f"--node_rank={rank}" in argv
    assert f"--master_addr={helpers.hosts(4)[master]}" in argv
    assert found.outputs
    assert next(iter(found.outputs.keys)) == found.job.node.first_rank == 2 * rank
    assert bool(found.warnings) is warned


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"RANK_AFTER_ACC": "0", "MA_MASTER_INDEX": "2"}, ["RANK_AFTER_ACC=0 contradicts MA_MASTER_INDEX=2 on node 1", "ROUTE_PLAN=false"]),
        ({"RANK_AFTER_ACC": "2", "MA_MASTER_INDEX": "1"}, ["RANK_AFTER_ACC=2 contradicts MA_MASTER_INDEX=1"]),
        ({"RANK_AFTER_ACC": "4", "MA_MASTER_INDEX": "0"}, ["RANK_AFTER_ACC=4", "expected 0 to 3"]),
        ({"RANK_AFTER_ACC": "2", "MA_MASTER_INDEX": "9"}, ["MA_MASTER_INDEX=9", "expected 0 to 3"]),
        ({"RANK_AFTER_ACC": "-1"}, ["RANK_AFTER_ACC='-1'"]),
        ({"RANK_AFTER_ACC": "2", "MA_MASTER_INDEX": "0", "RANKLAUNCH_SLOTS": "2,1,2,2"}, ["same number of slots", "ROUTE_PLAN=false"]),
        ({"ROUTE_PLAN": "maybe"}, ["ROUTE_PLAN='maybe'", "true or false"]),
    ],
)
def test_a_route_plan_that_contradicts_itself_is_refused(env: dict[str, str], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        plan(nodes=4, **{"ROUTE_PLAN": "true", **env})
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize("extra", ["'open", 'a "b', "a\\"])
def test_extra_parameters_that_are_no_words_are_refused(extra: str) -> None:
    with pytest.raises(ConfigError, match=r"MA_EXTRA_TORCHRUN_PARAMS=.*expected shell words"):
        plan(extra)


# What torchrun says at its end. The text is that of torch 2.13; 1.11 wrote the same fields.


def entry(number: int, rank: int, code: int, pid: int = 100, more: str = "") -> str:
    return (
        f"[{number}]:\n  time      : 2026-11-21_04:54:52\n  host      : worker-0\n  rank      : {rank} (local_rank: {rank % 8})\n"
        f"  exitcode  : {code} (pid: {pid}){more}\n  error_file: <N/A>\n  traceback : whatever\n"
    )


def summary(root: str, *others: str) -> str:
    line = "-" * 53
    failures = "Failures:\n" + "".join(others) if others else "Failures:\n  <NO_OTHER_FAILURES>\n"
    return (
        "Traceback (most recent call last):\n  raise ChildFailedError(\ntorch...ChildFailedError: \n"
        f"{'=' * 53}\nfail.py FAILED\n{line}\n{failures}{line}\nRoot Cause (first observed failure):\n{root}{'=' * 53}\n"
    )


@helpers.for_each(
    [
        (summary(entry(0, 3, 7)), Failure(3, 7, 0, 100)),
        (summary(entry(0, 1, -9, 899, "  (SIGKILL)"), entry(1, 0, -15, 898, "  (SIGTERM)")), Failure(1, 137, 9, 899, victims=((0, 15),))),
        (summary(entry(0, 1, -11, more="  (SIGSEGV)")), Failure(1, 139, 11, 100)),
        (summary(entry(0, 12, 1), entry(1, 13, 2), entry(2, 14, 3)), Failure(12, 1, 0, 100)),
        # Torchrun itself ended the rank that it calls the root.
        (summary(entry(0, 0, -15, more="  (SIGTERM)"), entry(1, 5, 7, 55)), Failure(5, 7, 0, 55, victims=((0, 15),))),
        (summary(entry(0, 0, -15, more="  (SIGTERM)")), Failure(0, 143, 15, 100)),
        ("rank told the same: Root Cause (first observed failure):\n[0]:\n nothing\n" + summary(entry(0, 2, 3)), Failure(2, 3, 0, 100)),
        (summary(entry(0, 3, 7)).replace("\n", "\r\n"), Failure(3, 7, 0, 100)),
        ("", None),
        ("Traceback (most recent call last):\nRuntimeError: Socket Timeout\n", None),
        (summary(entry(0, 3, 7))[-60:], None),
        (summary("[0]:\n  cut off"), None),
    ]
)
def test_its_last_words(tail: str, expected: Failure | None) -> None:
    assert torchrun.report(tail) == expected
    assert (re.search(torchrun.REPORT_END, tail) is None) == (expected is None or not tail)


def test_its_last_words_cut_anywhere() -> None:
    """Only the end of what it wrote is kept, and a process that is killed stops in the middle."""
    whole = summary(entry(0, 1, -9, 899, "  (SIGKILL)"), entry(1, 0, -15, 898, "  (SIGTERM)"))
    for at in range(len(whole)):
        assert torchrun.report(whole[at:]) in (None, Failure(1, 137, 9, 899), Failure(1, 137, 9, 899, victims=((0, 15),)))
        torchrun.report(whole[:at])


@pytest.mark.parametrize(("code", "expected"), [("42", (42, 0)), ("-9", (137, 9))])
def test_a_summary_that_never_came(code: str, expected: tuple[int, int]) -> None:
    """Older torchruns wait for those of the other nodes before they write it, and are ended meanwhile."""
    tail = f"E1121 09:00:00.000000 77 multiprocessing/api.py:984] failed (exitcode: {code}) local_rank: 1 (pid: 4711) of binary: python\n"
    of_an_earlier_round = tail.replace(code, "5").replace("4711", "12")
    found = torchrun.report(of_an_earlier_round + tail)
    assert found
    assert (found.rank, found.exit_code, found.signal, found.pid) == (None, *expected, 4711)
    of_one_that_a_rank_started = of_an_earlier_round + summary(entry(0, 0, 5, 12))
    assert torchrun.report(of_one_that_a_rank_started + tail) == found


AT = "torch/distributed/elastic/multiprocessing/api.py:984]"
FAILED = f"E1128 16:35:30.0 {{}} {AT} failed (exitcode: {{}}) local_rank: 0 (pid: {{}}) of binary: sh\n"
TOLD = "torch.distributed.elastic.multiprocessing.api.SignalException: Process {} got signal: {}\n"


@pytest.mark.parametrize(
    ("tail", "expected"),
    [
        (FAILED.format(77, 5, 12) + "eval ended\n" + TOLD.format(9, 15), Failure(None, 143, 15, 9)),  # 77: that a rank has started
        (FAILED.format(77, 5, 12) + summary(entry(0, 0, 5, 12)) + FAILED.format(9, 1, 3), Failure(None, 1, 0, 3)),
        (FAILED.format(9, 1, 3) + FAILED.format(77, 5, 12) + summary(entry(0, 0, 5, 12)), Failure(None, 1, 0, 3)),
        (TOLD.format(77, 15) + FAILED.format(9, 1, 3) + summary(entry(0, 0, 1, 3)), Failure(0, 1, 0, 3)),
        (FAILED.format(9, 5, 12) + TOLD.format(9, 1), Failure(None, 129, 1, 9)),  # of a round that it has outlived
        ("W1128 1:2:3.4 9 torch/distributed/elastic/agent/server/api.py:753] Received 2 death signal, shutting", Failure(None, 130, 2, 9)),
        (FAILED.format(77, 5, 12) + summary(entry(0, 0, 5, 12)) + TOLD.format(77, 15), None),
    ],
)
def test_whose_words_they_are(tail: str, expected: Failure | None) -> None:
    assert torchrun.report(tail, 9) == expected


# How long ranks have to end

API = "/usr/local/lib/python3.11/site-packages/torch/distributed/launcher/api.py"
KNOWS = {"/usr/local/bin/python3.11": "", API: 'int(os.environ.get("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "30"))\n'}
OLDER = {"/usr/local/bin/python3.11": "", API: "monitor_interval: float = 30\n"}


@pytest.mark.parametrize("method", ["torchrun", "megatron", "accelerate"])
@pytest.mark.parametrize(
    ("files", "grace_s", "given", "told", "halt_stop_s", "halt_failure_s"),
    [
        (KNOWS, "25", "", "30", 0, 0),
        (KNOWS, "60.5", "", "66", 0, 28),
        (KNOWS, "60", "100", "100", 0, 28),
        (OLDER, "25", "", None, 0, 0),
        (OLDER, "60", "", None, 28, 28),
        ({}, "60", "", None, 28, 28),
    ],
)
def test_ranks_have_the_grace(
    method: str, files: dict[str, str], grace_s: str, given: str, told: str | None, halt_stop_s: float, halt_failure_s: float
) -> None:
    env = helpers.modelarts(1, 2, RANKLAUNCH_GRACE_S=grace_s, TORCH_ELASTIC_SHUTDOWN_TIMEOUT=given)
    found = helpers.plan(env, method=method, files=files, python="/usr/local/bin/python3.11")
    (process,) = found.processes
    assert process.env.get("TORCH_ELASTIC_SHUTDOWN_TIMEOUT") == told
    assert helpers.holds(found) == (halt_stop_s, halt_failure_s)
    assert ["is halted after 28 s" in text for text in found.warnings] == [True] * bool(halt_stop_s and files)


@pytest.mark.parametrize("method", ["torchrun", "accelerate"])
def test_what_leaves_ranks_less_than_the_grace_is_said(method: str) -> None:
    def said(files: dict[str, str], **env: str) -> tuple[str, ...]:
        given = helpers.modelarts(1, 2, RANKLAUNCH_GRACE_S="60", **env)
        return helpers.plan(given, method=method, files=files, python="/usr/local/bin/python3.11").warnings

    (text,) = said(KNOWS, TORCH_ELASTIC_SHUTDOWN_TIMEOUT="40")
    assert text.startswith("TORCH_ELASTIC_SHUTDOWN_TIMEOUT=40: torch kills ranks then, before RANKLAUNCH_GRACE_S=60 is over: set ")
    restarts = {f"RANKLAUNCH_EXTRA_{method.upper()}_PARAMS": "--max_restarts=1"}
    assert any("with --max_restarts, torch kills ranks 30 s after a failure" in text for text in said(KNOWS, **restarts))
