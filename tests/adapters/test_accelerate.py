"""What accelerate is told, and what is said of options that fight. What it does: tests/launchers/test_accelerate.py."""

from __future__ import annotations

import json
from collections.abc import Mapping

import helpers
import pytest

from ranklaunch.adapters.launchers import torchrun
from ranklaunch.errors import ConfigError
from ranklaunch.plan.model import Plan, RankLog

GPU = {"CUDA_VERSION": "12.6"}
NPU = {"ASCEND_VISIBLE_DEVICES": "0-7"}


def plan(
    extra: str = "", nodes: int = 2, slots: int = 2, node: int = 1, files: Mapping[str, str | ValueError] | None = None, **env: str
) -> Plan:
    given = {"RANKLAUNCH_EXTRA_ACCELERATE_PARAMS": extra, **env}
    return helpers.plan(helpers.modelarts(nodes, slots, node, **given), "--lr", "1", files=files, method="accelerate")


def config(found: Plan) -> dict[str, object]:
    (file,) = found.files
    argv = found.processes[0].argv
    assert file.path == argv[argv.index("--config_file") + 1] == "/logs/attempt_1/accelerate.json"
    return dict(json.loads(file.text))


def test_the_command() -> None:
    assert plan("--use_fsdp --fsdp_version 2").processes[0].argv == (
        *("accelerate", "launch", "--num_machines", "2", "--num_processes", "4", "--machine_rank", "1"),
        *("--main_process_ip", helpers.hosts(2)[0], "--main_process_port", "29500", "--config_file", "/logs/attempt_1/accelerate.json"),
        *("--log_dir", "/logs/attempt_1/accelerate/node_1", "--use_fsdp", "--fsdp_version", "2", "train.py", "--lr", "1"),
    )


def test_its_configuration_says_the_same() -> None:
    assert config(plan(**GPU, RANKLAUNCH_MASTER_PORT="1234")) == {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "MULTI_GPU",
        "num_machines": 2,
        "num_processes": 4,
        "machine_rank": 1,
        "main_process_ip": helpers.hosts(2)[0],
        "main_process_port": 1234,
        "use_cpu": False,
    }


@pytest.mark.parametrize(("env", "slots", "kind", "cpu"), [(GPU, 2, "MULTI_GPU", 0), (NPU, 2, "MULTI_NPU", 0), ({}, 0, "MULTI_GPU", 1)])
def test_what_it_trains_on(env: dict[str, str], slots: int, kind: str, cpu: int) -> None:
    found = plan(slots=slots, **env)
    assert (config(found)["distributed_type"], config(found)["use_cpu"]) == (kind, bool(cpu))
    assert found.processes[0].env.get("ACCELERATE_USE_CPU") == ("true" if cpu else None)


def test_one_rank_is_started_like_many() -> None:
    found = plan(nodes=1, slots=1, node=0, **GPU)
    assert (config(found)["distributed_type"], config(found)["num_processes"]) == ("MULTI_GPU", 1)
    assert "--multi_gpu" not in found.processes[0].argv


@pytest.mark.parametrize("precision", ["no", "fp16", "bf16", "fp8"])
def test_mixed_precision(precision: str) -> None:
    argv = plan(RANKLAUNCH_MIXED_PRECISION=precision).processes[0].argv
    assert argv[argv.index("--mixed_precision") + 1] == precision


def test_the_program_decides_where_nobody_names_a_precision() -> None:
    assert "--mixed_precision" not in plan().processes[0].argv


@pytest.mark.parametrize(
    ("extra", "nodes", "expected"),
    [
        ("--use_deepspeed", 2, {"deepspeed_multinode_launcher": "standard"}),
        ("--use_deepspeed --deepspeed_multinode_launcher nossh", 2, None),
        ("--use-deepspeed", 1, None),
        ("--use_fsdp", 2, None),
    ],
)
def test_deepspeed_starts_the_ranks_of_its_own_node(extra: str, nodes: int, expected: object) -> None:
    assert config(plan(extra, nodes, node=0)).get("deepspeed_config") == expected


def test_it_ends_like_torchrun() -> None:
    found = plan()
    assert (helpers.launcher(found).ENDS_RANKS, helpers.launcher(found).DEPTH) == ((torchrun.CLOSING,), 1)
    assert helpers.launcher(plan("--max_restarts 3")).ENDS_RANKS == ()


def test_ranks_write_files_of_their_own() -> None:
    found = plan()
    logs = (RankLog("0", 2, "/logs/attempt_1/rank_2.log", "[rank 2] "), RankLog("1", 3, "/logs/attempt_1/rank_3.log", "[rank 3] "))
    assert found.outputs
    assert (found.outputs.folder, found.outputs.logs) == ("/logs/attempt_1/accelerate/node_1", logs)
    assert found.processes[0].env["PET_REDIRECTS"] == "3"


@pytest.mark.parametrize("extra", ["--log_dir=/x", "--tee 3", "-t 3", "--rdzv_backend c10d"])
def test_where_ranks_write_is_the_users_choice(extra: str) -> None:
    found = plan(extra)
    assert found.outputs is None
    assert "/logs/attempt_1/accelerate/node_1" not in found.processes[0].argv
    assert not any(name.startswith("PET_") for name in found.processes[0].env)


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ("", []),
        ("--use_fsdp", []),
        ("--num_processes=4 --num-machines 2 --machine_rank 1", []),
        ("--main_process_ip x", ["its own --main_process_ip"]),
        ("--max_restarts 3", ["--max_restarts"]),
    ],
)
def test_options_that_fight_are_named(extra: str, words: list[str]) -> None:
    said = plan(extra).warnings
    assert bool(said) == bool(words)
    assert all(any(word in text for text in said) for word in words), said
    assert all(text.startswith("RANKLAUNCH_EXTRA_ACCELERATE_PARAMS has") for text in said)


def test_a_rank_table_is_not_used_and_that_is_said() -> None:
    assert plan(RANK_TABLE_FILE="/user/config").warnings == (
        "method accelerate does not use the rank table /user/config/jobstart_hccl.json",
    )


@pytest.mark.parametrize(
    ("extra", "env", "words"),
    [
        ("", {"RANKLAUNCH_SLOTS": "2,1"}, ["option --method=accelerate", "2, 1", "method torchrun or spawn"]),
        ("--num-processes 1", {}, ["RANKLAUNCH_EXTRA_ACCELERATE_PARAMS has --num_processes 1: expected 4", "RANKLAUNCH_SLOTS"]),
        ("--num_machines=1 --machine_rank 0", {}, ["--num_machines 1: expected 2", "--machine_rank 0: expected 1"]),
        ("--cpu", {}, ["RANKLAUNCH_EXTRA_ACCELERATE_PARAMS has --cpu", "4 ranks", "--accelerator=cpu"]),
        ("", {"RANKLAUNCH_MIXED_PRECISION": "bf61"}, ["RANKLAUNCH_MIXED_PRECISION='bf61'", "no, fp16, bf16, fp8", "did you mean 'bf16'"]),
        ("'open", {}, ["RANKLAUNCH_EXTRA_ACCELERATE_PARAMS", "expected shell words"]),
        ("", {"RANKLAUNCH_MASTER_PORT": "99999"}, ["RANKLAUNCH_MASTER_PORT='99999'", "1 to 65535"]),
    ],
)
def test_what_cannot_be_is_refused(extra: str, env: dict[str, str], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        plan(extra, **env)
    assert all(word in str(caught.value) for word in words), caught.value


# As `accelerate config` writes it.
CONFIG = """compute_environment: LOCAL_MACHINE
debug: false
distributed_type: MULTI_GPU
machine_rank: 0
num_machines: 2
num_processes: 4
use_cpu: true
"""


OURS = {"num_machines": 2, "num_processes": 4, "machine_rank": 1, "main_process_ip": helpers.hosts(2)[0], "main_process_port": 29500}


def with_config(text: str | ValueError | None, extra: str = "", name: str = "mine.yaml", **env: str) -> Plan:
    return plan(f"--config_file {name} {extra}", files={f"{helpers.CWD}/{name}": text} if text is not None else {}, **env)


@pytest.mark.parametrize("value", ["abc", "7", "true"])
@pytest.mark.parametrize("nodes", [1, 2])
def test_what_has_no_keys_below_it(value: str, nodes: int) -> None:
    files = {f"{helpers.CWD}/mine.yaml": f"distributed_type: DEEPSPEED\ndeepspeed_config: {value}\n"}
    with pytest.raises(ConfigError, match=r"mine.yaml: deepspeed_config .*: expected keys below it"):
        plan("--config_file mine.yaml", nodes=nodes, node=0, files=files)


def test_the_users_own_file_is_written_anew_with_the_place_of_this_node() -> None:
    text = CONFIG.replace("processes: 4", "processes: 8") + "fsdp_config:\n  fsdp_version: 2\nmixed_precision: bf16\nunheard_of: a b\n"
    found = with_config(text, "--use_fsdp")
    kept = {"compute_environment": "LOCAL_MACHINE", "debug": False, "distributed_type": "MULTI_GPU", "use_cpu": True}
    assert config(found) == {**kept, **OURS, "fsdp_config": {"fsdp_version": 2}, "mixed_precision": "bf16", "unheard_of": "a b"}
    assert found.processes[0].argv.count("--config_file") == 1
    assert "--use_fsdp" in found.processes[0].argv
    assert [*found.warnings] == [
        "RANKLAUNCH_EXTRA_ACCELERATE_PARAMS: --config_file mine.yaml: this job's values replace num_processes 8 by 4"
    ]


@pytest.mark.parametrize(
    ("path", "env"),
    [
        ("/cfg/a.yaml", {"ACCELERATE_CONFIG_FILE": "/cfg/a.yaml"}),
        ("/root/.cache/huggingface/accelerate/default_config.yaml", {}),
        ("/home/me/.cache/huggingface/accelerate/default_config.json", {"HOME": "/home/me"}),
        ("/c/huggingface/accelerate/default_config.yaml", {"XDG_CACHE_HOME": "/c"}),
        ("/home/me/hf/accelerate/default_config.yaml", {"HF_HOME": "~/hf", "XDG_CACHE_HOME": "/c", "HOME": "/home/me"}),
    ],
)
def test_it_is_found_where_accelerate_finds_it(path: str, env: dict[str, str]) -> None:
    text = json.dumps({"mixed_precision": "bf16"}) if path.endswith("json") else f"{CONFIG}mixed_precision: bf16\n"
    found = plan(files={path: text}, **env)
    assert (config(found)["mixed_precision"], config(found)["num_processes"], found.warnings) == ("bf16", 4, ())
    assert "mixed_precision" not in config(plan("--config_file=/x.yaml", files={path: text, "/x.yaml": CONFIG}, **env))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (CONFIG.replace("MULTI_GPU", "MULTI_CPU"), ["distributed_type MULTI_CPU", "trains alone", "expected MULTI_GPU"]),
        (CONFIG.replace("MULTI_GPU", "'NO'"), ["distributed_type NO", "4 ranks"]),
        (CONFIG.replace("MULTI_GPU", "NO"), ["distributed_type False", "4 ranks"]),
        (CONFIG.replace("LOCAL_MACHINE", "AMAZON_SAGEMAKER"), ["would submit a job"]),
        (f"{CONFIG}gpu_ids: '3'\n", ["gpu_ids 3 (1 device), but 2 ranks"]),
        (
            CONFIG.replace("MULTI_GPU", "DEEPSPEED") + "deepspeed_config:\n  deepspeed_multinode_launcher: pdsh\n",
            ["deepspeed_multinode_launcher pdsh", "each of 2 nodes", "expected standard"],
        ),
        (json.dumps({"distributed_type": "NO", "num_processes": 1}), ["distributed_type NO"]),
    ],
)
def test_a_configuration_that_contradicts_the_job_is_refused(text: str, words: list[str]) -> None:
    name = "mine.json" if text.startswith("{") else "mine.yaml"
    with pytest.raises(ConfigError) as caught:
        with_config(text, name=name)
    assert all(word in str(caught.value) for word in (f"PARAMS: --config_file {name} has", *words)), caught.value


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "mine.yaml: no such file"),
        (ValueError("it is no text"), "mine.yaml: it is no text"),
        (f"{CONFIG}a: &b c\n", "mine.yaml: line 8: the value is not understood"),
        ("{distributed_type: NO}", "mine.yaml: line 1: expected `key: value`"),
    ],
)
def test_a_configuration_that_cannot_be_read_is_refused(text: str | ValueError | None, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        with_config(text)


def test_deepspeed_of_a_file_starts_the_ranks_of_its_own_node() -> None:
    text = CONFIG.replace("MULTI_GPU", "DEEPSPEED")
    given = f"{text}deepspeed_config:\n  zero_stage: 2\n"
    assert config(with_config(given))["deepspeed_config"] == {"zero_stage": 2, "deepspeed_multinode_launcher": "standard"}
    assert config(with_config(text))["deepspeed_config"] == {"deepspeed_multinode_launcher": "standard"}
    assert config(with_config(given, "--deepspeed_multinode_launcher nossh"))["deepspeed_config"] == {"zero_stage": 2}


def test_a_file_of_one_process_is_one_rank() -> None:
    text = CONFIG.replace("MULTI_GPU", "'NO'").replace("num_processes: 4", "num_processes: 1").replace("num_machines: 2", "num_machines: 1")
    found = plan("--config_file /m.yaml", nodes=1, slots=1, node=0, files={"/m.yaml": text}, **GPU)
    assert (config(found)["distributed_type"], found.warnings) == ("MULTI_GPU", ())
