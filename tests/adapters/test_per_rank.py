"""A ranklaunch for each rank, as platforms may start them."""

from __future__ import annotations

import helpers
import pytest

from ranklaunch.errors import ConfigError

FLUX = {
    "FLUX_JOB_ID": "f1", "FLUX_TASK_RANK": "5", "FLUX_JOB_NNODES": "2", "FLUX_JOB_SIZE": "8", "FLUX_TASK_LOCAL_ID": "1", "PMI_RANK": "5",
    "RANKLAUNCH_HOSTS": "a,b",
}  # fmt: skip
LSF = {
    "LSB_JOBID": "7", "LSB_MCPU_HOSTS": "batch1 1 a 42 b 42", "JSM_NAMESPACE_RANK": "5", "JSM_NAMESPACE_SIZE": "8",
    "JSM_NAMESPACE_LOCAL_RANK": "1",
}  # fmt: skip
SLURM = {
    "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "a,b", "SLURM_STEP_TASKS_PER_NODE": "4(x2)", "SLURM_NTASKS": "8",
    "SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_NODEID": "1",
}  # fmt: skip
AZURE = {
    "AZUREML_RUN_ID": "x1", "AZUREML_NODE_COUNT": "2", "NODE_RANK": "1", "MASTER_ADDR": "a", "WORLD_SIZE": "8", "RANK": "5",
    "LOCAL_RANK": "1", "AZUREML_CR_NODE_RANK": "1", "AZ_BATCH_HOST_LIST": "a,b",
}  # fmt: skip
UNEVEN = {**SLURM, "SLURM_STEP_TASKS_PER_NODE": "6,2"}
PLACES = {
    "azureml": (AZURE, "4"),
    "flux": (FLUX, "4"),
    "lsf": (LSF, "4"),
    "slurm": (SLURM, "4"),
    "slurm, uneven": ({**UNEVEN, "SLURM_PROCID": "7"}, "2"),
}


@helpers.for_each(PLACES)
def test_each_stands_before_its_own_rank(env: dict[str, str], of_host: str) -> None:
    plan = helpers.plan({**env, "RANKLAUNCH_PER_RANK": "true"})
    rank = env.get("SLURM_PROCID", "5")
    (process,) = plan.processes
    wanted = {"RANK": rank, "LOCAL_RANK": "1", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": of_host, "MASTER_ADDR": "a"}
    assert (plan.method, {name: process.env.get(name) for name in wanted}) == ("spawn", wanted)
    assert plan.muster
    assert (plan.muster.node, len(plan.muster.hosts), plan.muster.hosts[0]) == (int(rank), 8, "a")
    assert plan.job.log_dir.endswith(f"/node_{rank}")


@helpers.for_each(PLACES)
def test_without_a_word_it_is_refused(env: dict[str, str], of_host: str) -> None:
    with pytest.raises(ConfigError, match="--per-rank"):
        helpers.plan(env)


def test_plain_leaves_what_the_platform_says_to_the_program() -> None:
    (process,) = helpers.plan({**FLUX, "RANKLAUNCH_PER_RANK": "true"}, method="plain").processes
    assert (process.unset, process.rank, process.local_rank) == ((), 5, 1)


@helpers.for_each(
    {
        "a launcher": (FLUX, {"RANKLAUNCH_METHOD": "torchrun"}, "expected spawn or plain"),
        "uneven hosts": ({**FLUX, "FLUX_JOB_SIZE": "7"}, {}, "do not say how many ranks this host has"),
        "a rank that its host does not have": (FLUX, {"FLUX_TASK_LOCAL_ID": "4"}, "do not say how many ranks this host has"),
        "slots": (FLUX, {"RANKLAUNCH_SLOTS": "4"}, "each with one slot"),
        "cores": (FLUX, {"RANKLAUNCH_BIND": "cores"}, "the platform has placed the ranks"),
        "no hosts": ({**FLUX, "RANKLAUNCH_HOSTS": ""}, {}, "no variable of Flux names the hosts"),
        "no tasks": ({}, {}, "platform local shows no tasks"),
        "a number too high": ({**FLUX, "FLUX_TASK_RANK": "8"}, {}, "expected 0 to 7"),
    }
)
def test_refused(env: dict[str, str], more: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        helpers.plan({**env, **more, "RANKLAUNCH_PER_RANK": "true"})
    assert any(said in problem for problem in caught.value.problems), caught.value.problems
