"""What makes ranks record what they do: by accelerator, by the versions that are there, and by what the user says."""

from __future__ import annotations

import helpers
import pytest

PYTHON = {"PATH": "/env/bin"}
AT = "/tmp/ranklaunch-recorders-"
FAULTHANDLER = {"PYTHONFAULTHANDLER": "1"}
OLD = {
    "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
    "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "DUMPS/nccl_trace_rank_",
    "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": "DUMPS/nccl_pipe_rank_",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
}
NEW = {
    "TORCH_FR_BUFFER_SIZE": "2000",
    "TORCH_FR_DUMP_TEMP_FILE": "DUMPS/nccl_trace_rank_",
    "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": "DUMPS/nccl_pipe_rank_",
}
HCCL = {
    "TORCH_HCCL_TRACE_BUFFER_SIZE": "2000",
    "TORCH_HCCL_DEBUG_INFO_TEMP_FILE": "DUMPS/hccl_trace_rank_",
    "TORCH_HCCL_DEBUG_INFO_PIPE_FILE": "DUMPS/hccl_pipe_rank_",
    "TORCH_HCCL_DUMP_ON_TIMEOUT": "1",
    "TORCH_HCCL_ENABLE_MONITORING": "1",
}
PLOG = {"ASCEND_PROCESS_LOG_PATH": "/workspace/ranklaunch-logs/attempt_1/ascend"}


def recorders(env: dict[str, str], torch: str = "", packages: bool = True, **options: str) -> dict[str, str]:
    folder = "/env/lib/python3.11/site-packages"
    installed = {"/env/bin/python3.11": "", "/env/bin/python": "", f"{folder}/README": ""} if packages else {}
    files = {**installed, **({f"{folder}/torch-{torch}.dist-info/METADATA": ""} if torch else {})}
    plan = helpers.plan({**PYTHON, **env}, files={**files, "/workspace/train.py": ""}, **{"method": "spawn", "slots": "2", **options})
    assert all(each.why for each in plan.recorders.variables)
    folder = plan.recorders.folder
    return {each.name: each.value.replace(folder, "DUMPS") if folder else each.value for each in plan.recorders.variables}


CASES: dict[str, tuple[dict[str, str], str, str, dict[str, str]]] = {
    "CPUs": ({}, "cpu", "2.13.0+cpu", FAULTHANDLER),
    "an older PyTorch": ({}, "gpu", "2.4.1+cu121", {**FAULTHANDLER, **OLD}),
    "a newer PyTorch": ({}, "gpu", "2.8.0", {**FAULTHANDLER, **NEW}),
    "no PyTorch": ({}, "gpu", "", FAULTHANDLER),
    "NPUs": ({}, "npu", "2.6.0", {**FAULTHANDLER, **PLOG}),
    "NPUs, all": ({"RANKLAUNCH_RECORDERS": "npu"}, "npu", "2.6.0", {**FAULTHANDLER, **PLOG, **HCCL}),
    "off": ({"RANKLAUNCH_RECORDERS": "off"}, "gpu", "2.8.0", {}),
    "off on CPUs": ({"RANKLAUNCH_RECORDERS": "off"}, "cpu", "2.8.0", {}),
    "Python's is said": ({"PYTHONFAULTHANDLER": ""}, "cpu", "2.8.0", {}),
    "the older names are said": (
        {"TORCH_NCCL_TRACE_BUFFER_SIZE": "20000", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "/mine/", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": ""},
        "gpu", "2.13.0", FAULTHANDLER,
    ),
    "stacks alone": (
        {"RANKLAUNCH_STACKS": "on", "RANKLAUNCH_RECORDERS": "off", "PYTHONPATH": "/mine:"}, "cpu", "", {"PYTHONPATH": "STACKS:/mine:"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", CASES)
def test_what_ranks_get(what: str) -> None:
    env, accelerator, torch, expected = CASES[what]
    found = recorders(env, torch, accelerator=accelerator)
    if "PYTHONPATH" in found:
        first, _, rest = found["PYTHONPATH"].partition(":")
        assert first.endswith("/ranklaunch/programs/stacks")
        found["PYTHONPATH"] = f"STACKS:{rest}"
    assert found == expected


def test_where_nobody_knows_the_version_the_older_names_are_right_with_all() -> None:
    assert recorders({}, packages=False, accelerator="gpu") == {**FAULTHANDLER, **OLD}


def test_with_a_rank_table_each_rank_has_a_plog_of_its_own() -> None:
    table = helpers.group_table([("pod-0", "10.0.0.1", ["0", "1"])])
    plan = helpers.plan(helpers.local(slots="2"), files={"/t.json": table}, rank_table="/t.json", method="ranktable", accelerator="npu")
    assert [each.name for each in plan.recorders.variables] == ["PYTHONFAULTHANDLER"]
    assert len({process.env["ASCEND_PROCESS_LOG_PATH"] for process in plan.processes}) == 2


def test_mpirun_forwards_what_holds_on_every_node() -> None:
    plan = helpers.plan(helpers.modelarts(nodes=2, slots=2), method="mpirun", accelerator="gpu")
    argv = plan.processes[0].argv
    forwarded = {argv[i + 1] for i, word in enumerate(argv) if word == "-x"}
    assert "PYTHONFAULTHANDLER" in forwarded
    assert not [name for name in forwarded if "FILE" in name]
