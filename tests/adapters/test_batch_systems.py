"""LSF, PBS and Flux, beyond their golden cases; and hosts that a file or a command names."""

from __future__ import annotations

import helpers
import pytest

from ranklaunch.env.job import Program
from ranklaunch.env.reader import Arrived
from ranklaunch.errors import ConfigError
from ranklaunch.plan.planning import Request, make_plan

PBS = {"PBS_JOBID": "4711.pbs01", "PBS_ENVIRONMENT": "PBS_BATCH", "PBS_NODENUM": "1", "PBS_TASKNUM": "40000001", "RANKLAUNCH_SLOTS": "1"}
LSF = {"LSB_JOBID": "7", "LSB_MCPU_HOSTS": "g1 16 g2 16", "LSF_PM_TASKID": "2", "HOSTNAME": "g2"}
FLUX = {"FLUX_JOB_ID": "f1", "FLUX_TASK_RANK": "1", "FLUX_JOB_NNODES": "2", "FLUX_JOB_SIZE": "2", "FLUX_TASK_LOCAL_ID": "0"}
HOSTNAME = "/proc/sys/kernel/hostname"
FILE = {"/shared/hosts": "gn03\ngn03\n\ngn04\ngn04\n"}


@helpers.for_each(
    {
        "pbs": (PBS, {"RANKLAUNCH_HOSTS": "a,b"}, 8.0),
        "lsf": (LSF, {}, 16.0),
        "flux": (FLUX, {"RANKLAUNCH_HOSTS": "a,b"}, 4.0),
    }
)
def test_ranks_have_less_time_than_the_platform_takes_to_kill(env: dict[str, str], more: dict[str, str], grace_s: float) -> None:
    assert helpers.plan({**env, **more}).limits.grace_s == grace_s
    assert helpers.plan({**env, **more, "RANKLAUNCH_GRACE_S": "60"}).limits.grace_s == 60


def test_attempts_are_counted_in_the_jobs_own_folder() -> None:
    """Its id stays where it starts anew; the other folder is another job's."""
    logs = "./ranklaunch-logs"
    files = {f"{logs}/job_7/node_1/attempt_2/verdict.json": "{}", f"{logs}/job_8/node_1/attempt_9/verdict.json": "{}"}
    found = helpers.plan(LSF, files=files)
    assert (found.job.attempt, found.job.log_dir) == (3, f"{helpers.CWD}/ranklaunch-logs/job_7/node_1")


def test_a_script_runs_where_the_user_says_which_node_it_is() -> None:
    script = {**LSF, "HOSTNAME": "g1", "RANKLAUNCH_NODE": "0"}
    del script["LSF_PM_TASKID"]
    assert helpers.plan(script).job.node_index == 0


@helpers.for_each({"pbs": (PBS, 1), "no platform": ({HOSTNAME: "gn04"}, 1), "no platform, node 0": ({HOSTNAME: "gn03.cluster"}, 0)})
def test_hosts_from_a_file(env: dict[str, str], index: int) -> None:
    own = {HOSTNAME: env.pop(HOSTNAME)} if HOSTNAME in env else {}
    found = helpers.plan({**env, "RANKLAUNCH_HOSTS_FROM": "/shared/hosts"}, files={**FILE, **own})
    assert ([node.host for node in found.job.nodes], found.job.node_index) == (["gn03", "gn04"], index)


@helpers.for_each([({HOSTNAME: "gn09"}, {}, "gn09"), ({}, {}, "localhost"), ({HOSTNAME: "gn08"}, {"RANKLAUNCH_NODE": "0"}, "gn09")])
def test_a_single_host_from_a_file(own: dict[str, str], env: dict[str, str], host: str) -> None:
    found = helpers.plan({**env, "RANKLAUNCH_HOSTS_FROM": "/shared/one"}, files={"/shared/one": f"{host}\n", **own})
    assert [node.host for node in found.job.nodes] == [host]


@helpers.for_each(
    {
        "two lists": ({"RANKLAUNCH_HOSTS": "a", "RANKLAUNCH_HOSTS_FROM": "/shared/hosts"}, "each of them names the nodes"),
        "no file": ({"RANKLAUNCH_HOSTS_FROM": "/shared/host"}, "no such file"),
        "no names": ({"RANKLAUNCH_HOSTS_FROM": "/shared/slots"}, "'a slots=2'"),
        "another host alone": (
            {"RANKLAUNCH_HOSTS_FROM": "/shared/one"},
            "gn09, the only host of RANKLAUNCH_HOSTS_FROM=/shared/one, is",
        ),
        "an unknown place": ({"RANKLAUNCH_HOSTS_FROM": "/shared/hosts"}, "which one this is"),
        "a command, of how many": ({"RANKLAUNCH_HOSTS_COMMAND": "flux hostlist"}, "--nodes (RANKLAUNCH_NODES)"),
    }
)
def test_hosts_that_are_refused(env: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        helpers.plan(env, files={**FILE, "/shared/slots": "a slots=2\n", "/shared/one": "gn09\n"})
    assert any(said in problem for problem in caught.value.problems), caught.value.problems


@helpers.for_each({"pbs": (PBS, "^tm"), "lsf": (LSF, "^lsf"), "within slurm": ({**LSF, "SLURM_JOB_ID": "1"}, "^slurm,lsf")})
def test_open_mpi_takes_no_hosts_of_the_batch_system(env: dict[str, str], kept_off: str) -> None:
    own = {"RANKLAUNCH_HOSTS": "g2,g1", "RANKLAUNCH_NODE": "0", "RANKLAUNCH_PLATFORM": "pbs" if env is PBS else "lsf"}
    (mpirun,) = helpers.plan({**env, **own}, method="mpirun").processes
    assert {name: mpirun.env[name] for name in mpirun.env if name.endswith(("_ras", "_plm"))} == dict.fromkeys(
        ("OMPI_MCA_ras", "OMPI_MCA_plm", "PRTE_MCA_ras", "PRTE_MCA_plm"), kept_off
    )


@pytest.mark.parametrize("method", ["torchrun", "mpirun"])
def test_a_command_that_was_not_run_is_a_wait(method: str) -> None:
    found = helpers.plan({**FLUX, "RANKLAUNCH_HOSTS_COMMAND": "flux hostlist"}, method=method)
    assert [(wait.kind, wait.what) for wait in found.waits][:1] == [("hosts command", "flux hostlist")]
    assert found.job.master == "unnamed-0"


def test_what_a_command_has_written() -> None:
    env = {**FLUX, "RANKLAUNCH_HOSTS_COMMAND": "flux hostlist"}
    request = Request(Program("train.py"), env, helpers.MemoryFiles(), {}, helpers.CWD, Arrived(named="tuo1,tuo2\n"))
    plan = make_plan(request)
    assert [node.host for node in plan.job.nodes] == ["tuo1", "tuo2"]
    assert not any(wait.kind == "hosts command" for wait in plan.waits)
