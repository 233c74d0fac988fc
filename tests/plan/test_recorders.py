"""What makes ranks record what they do: by accelerator, by the versions that are there, and by what the user says."""

from __future__ import annotations

import helpers
import pytest

from ranklaunch.files import rankside

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
RECORDS = "/workspace/ranklaunch-logs/attempt_1/records/node_0"
PLOG = {"ASCEND_PROCESS_LOG_PATH": "/workspace/ranklaunch-logs/attempt_1/ascend"}


def recorders(env: dict[str, str], torch: str = "", packages: bool = True, **options: str) -> dict[str, str]:
    folder = "/env/lib/python3.11/site-packages"
    installed = {"/env/bin/python3.11": "", "/env/bin/python": "", f"{folder}/README": ""} if packages else {}
    files = {**installed, **({f"{folder}/torch-{torch}.dist-info/METADATA": ""} if torch else {})}
    env, files = {"RANKLAUNCH_RANKSIDE": "off", **PYTHON, **env}, {**files, "/workspace/train.py": ""}
    plan = helpers.plan(env, files=files, **{"method": "spawn", "slots": "2", **options})
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
        {"RANKLAUNCH_RANKSIDE": "off", "RANKLAUNCH_STACKS": "on", "RANKLAUNCH_RECORDERS": "off", "PYTHONPATH": "/mine:"}, "cpu", "",
        {"PYTHONPATH": "RANKSIDE:/mine:"},
    ),
    "records without stacks": (
        {"RANKLAUNCH_RANKSIDE": "on", "RANKLAUNCH_STACKS": "off", "RANKLAUNCH_RECORDERS": "off"}, "cpu", "",
        {"PYTHONPATH": "RANKSIDE", "RANKLAUNCH_RECORDS_DIR": RECORDS, "RANKLAUNCH_STACKS": "off"},
    ),
    "a ranklaunch inside a rank puts its folder in front once": (
        {"RANKLAUNCH_RANKSIDE": "on", "RANKLAUNCH_RECORDERS": "off", "PYTHONPATH": f"{rankside()}:/mine"}, "cpu", "",
        {"PYTHONPATH": "RANKSIDE:/mine", "RANKLAUNCH_RECORDS_DIR": RECORDS},
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", CASES)
def test_what_ranks_get(what: str) -> None:
    env, accelerator, torch, expected = CASES[what]
    found = recorders(env, torch, accelerator=accelerator)
    found = {name: value.replace(rankside(), "RANKSIDE") for name, value in found.items()}
    assert found == expected


def test_where_nobody_knows_the_version_the_older_names_are_right_with_all() -> None:
    assert recorders({}, packages=False, accelerator="gpu") == {**FAULTHANDLER, **OLD}


def test_with_a_rank_table_each_rank_has_a_plog_of_its_own() -> None:
    table = helpers.group_table([("pod-0", "10.0.0.1", ["0", "1"])])
    plan = helpers.plan(helpers.local(slots="2"), files={"/t.json": table}, rank_table="/t.json", method="ranktable", accelerator="npu")
    assert [each.name for each in plan.recorders.variables] == ["PYTHONFAULTHANDLER", "PYTHONPATH", "RANKLAUNCH_RECORDS_DIR"]
    assert len({process.env["ASCEND_PROCESS_LOG_PATH"] for process in plan.processes}) == 2


def test_mpirun_forwards_what_holds_on_every_node() -> None:
    plan = helpers.plan(helpers.modelarts(nodes=2, slots=2), method="mpirun", accelerator="gpu")
    argv = plan.processes[0].argv
    forwarded = {argv[i + 1] for i, word in enumerate(argv) if word == "-x"}
    assert {"PYTHONFAULTHANDLER", "PYTHONPATH", "RANKLAUNCH_RECORDS_DIR"} <= forwarded
    assert not [name for name in forwarded if "FILE" in name]


def test_where_node_0_starts_all_ranks_each_node_has_its_own_records() -> None:
    """The variable is the same on all nodes; a file of each node's ranklaunch leads from there to its own folder."""
    jobs = [helpers.plan(helpers.modelarts(nodes=2, slots=2, index=i), method="mpirun").recorders.variables for i in (0, 1)]
    values = {each.value for recorders in jobs for each in recorders if each.name == "RANKLAUNCH_RECORDS_DIR"}
    assert len(values) == 1
    assert values.pop().startswith("below:/tmp/ranklaunch-records-")
