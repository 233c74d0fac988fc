"""SageMaker: hosts and program from the files below /opt/ml, and what its own training toolkit would give the program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import helpers
import pytest

from ranklaunch.adapters import platforms
from ranklaunch.adapters.platforms import sagemaker
from ranklaunch.env.job import Job, Program
from ranklaunch.errors import ConfigError
from ranklaunch.supervise.record import Record

CONFIG = "/opt/ml/input/config"


def files(
    host: str = "algo-1", hosts: Any = ("algo-1", "algo-2"), code: bool = True, gpus: int = 2, **hyperparameters: str
) -> dict[str, str]:
    return {
        f"{CONFIG}/resourceconfig.json": json.dumps({"current_host": host, "hosts": hosts}),
        f"{CONFIG}/hyperparameters.json": json.dumps(hyperparameters),
        f"{CONFIG}/inputdataconfig.json": json.dumps({"train": {"TrainingInputMode": "File"}}),
        **({"/opt/ml/code/train.py": ""} if code else {}),
        **{f"/dev/nvidia{i}": "" for i in range(gpus)},
    }


def job(given: dict[str, str], program: str = "train.py", **env: str) -> Job:
    return helpers.plan(env, program=program, files=given, method="spawn").job


def refused(given: dict[str, str], program: str = "train.py", **env: str) -> str:
    with pytest.raises(ConfigError) as caught:
        job(given, program, **env)
    return str(caught.value)


def program(given: dict[str, str], *words: str, **env: str) -> Program | None:
    return platforms.program(helpers.reader(env, given), words)


# Nodes


@pytest.mark.parametrize(
    ("host", "hosts", "index", "names"),
    [
        ("algo-1", ["algo-1"], 0, ["algo-1"]),
        ("algo-2", ["algo-2", "algo-1"], 1, ["algo-1", "algo-2"]),
        ("algo-2", [f"algo-{i}" for i in range(1, 12)], 3, ["algo-1", "algo-10", "algo-11", *(f"algo-{i}" for i in range(2, 10))]),
    ],
)
def test_hosts_are_sorted_as_sagemaker_does(host: str, hosts: list[str], index: int, names: list[str]) -> None:
    found = job(files(host, hosts))
    assert (found.platform, found.node_index, [node.host for node in found.nodes]) == ("sagemaker", index, names)
    assert [node.slots for node in found.nodes] == [2] * len(names)


def test_variables_of_the_toolkit_do_without_files() -> None:
    env = {"SM_HOSTS": '["algo-1","algo-2"]', "SM_CURRENT_HOST": "algo-2", "SM_NUM_GPUS": "8", "TRAINING_JOB_NAME": "digits"}
    found = job({}, **env)
    assert (found.name, found.node_index, found.node.slots) == ("digits", 1, 8)


def test_ranklaunch_variables_come_first() -> None:
    found = job(files(), RANKLAUNCH_HOSTS="b,a", RANKLAUNCH_NODE="1", RANKLAUNCH_SLOTS="3", RANKLAUNCH_JOB_NAME="own")
    assert ([node.host for node in found.nodes], found.node_index, found.node.slots, found.name) == (["b", "a"], 1, 3, "own")


@helpers.for_each(
    [
        (files("algo-3"), {}, ["current_host", "'algo-3'", "algo-1,algo-2", "RANKLAUNCH_NODE"]),
        (files(""), {}, ["current_host", "''"]),
        (files(), {"SM_CURRENT_HOST": "algo-2"}, ["SM_CURRENT_HOST='algo-2' contradicts current_host of", "resourceconfig.json='algo-1'"]),
        (files(), {"SM_HOSTS": '["algo-1","algo-3"]'}, ["SM_HOSTS", "contradicts hosts of", "algo-2", "RANKLAUNCH_HOSTS"]),
        (files(hosts=[]), {}, ["hosts of", "resourceconfig.json='[]'", "expected host names"]),
        (files(hosts=None), {}, ["hosts of", "resourceconfig.json='[]'"]),
        (files(hosts=[1]), {}, ["hosts 1;"]),
        (files(hosts=["a/"]), {}, ["resourceconfig.json='[\"a/\"]'"]),
        (files(), {"RANKLAUNCH_NODE": "2"}, ["RANKLAUNCH_NODE=2", "0 to 1"]),
        (files(), {"RANKLAUNCH_NODES": "3"}, ["RANKLAUNCH_NODES=3", "2 hosts"]),
        ({f"{CONFIG}/resourceconfig.json": "{"}, {}, ["resourceconfig.json", "JSON object"]),
        ({f"{CONFIG}/resourceconfig.json": "[]"}, {}, ["resourceconfig.json", "JSON object"]),
        ({**files(), f"{CONFIG}/hyperparameters.json": "x"}, {}, ["hyperparameters.json", "JSON object"]),
    ]
)
def test_refused(given: dict[str, str], env: dict[str, str], words: list[str]) -> None:
    message = refused(given, **env)
    assert all(word in message for word in words), message


# The program. Recorded from sagemaker-training 5.1.4: what its `train` started with these hyperparameters.

GIVEN = {
    "epochs": "3", "lr": "0.10", "name": '"quoted"', "plain": "a b", "flag": "true", "none": "null", "list": "[1, 2]",
    "dict": '{"b": 1, "a": true}', "x": "1", "big": "1e400", "empty": "", "float": "1e-05", "uni": '"é"', "dup": '{"a":1,"a":2}',
    "neg": "-1", "nan": "NaN", "esc": "'--x=1'", "sagemaker_program": '"train.py"', "sagemaker_submit_directory": '"/opt/ml/code"',
    "sagemaker_container_log_level": "20", "sagemaker_job_name": '"j"', "sagemaker_region": '"eu-west-1"',
    "_tuning_objective_metric": '"loss"',
}  # fmt: skip
RECORDED = (
    "--big", "inf", "--dict", "a=True,b=1", "--dup", "a=2", "--empty", "", "--epochs", "3", "--esc", "'--x=1'", "--flag", "True",
    "--float", "1e-05", "--list", "[1, 2]", "--lr", "0.1", "--name", "quoted", "--nan", "nan", "--neg", "-1", "--none", "",
    "--plain", "a b", "--uni", "é", "-x", "1",
)  # fmt: skip
RECORDED_ENVIRONMENT = {
    "SM_CHANNELS": '["train"]', "SM_CHANNEL_TRAIN": "/opt/ml/input/data/train", "SM_CURRENT_HOST": "algo-1", "SM_HOSTS": '["algo-1"]',
    "SM_HP_DICT": '{"a":true,"b":1}', "SM_HP_EMPTY": "", "SM_HP_EPOCHS": "3", "SM_HP_FLAG": "true", "SM_HP_LR": "0.1",
    "SM_HP_NAME": "quoted", "SM_HP_NONE": "", "SM_HP_PLAIN": "a b", "SM_HP_UNI": "é", "SM_HP_LIST": "[1,2]",
    "SM_INPUT_CONFIG_DIR": "/opt/ml/input/config", "SM_INPUT_DATA_CONFIG": '{"train":{"TrainingInputMode":"File"}}',
    "SM_INPUT_DIR": "/opt/ml/input", "SM_MODEL_DIR": "/opt/ml/model", "SM_MODULE_DIR": "/opt/ml/code", "SM_MODULE_NAME": "train",
    "SM_NETWORK_INTERFACE_NAME": "eth0", "SM_NUM_GPUS": "0", "SM_LOG_LEVEL": "20",
    "SM_OUTPUT_DATA_DIR": "/opt/ml/output/data",
    "SM_OUTPUT_DIR": "/opt/ml/output", "SM_USER_ENTRY_POINT": "train.py", "SM_NUM_CPUS": "2",
}  # fmt: skip


@pytest.mark.parametrize("words", [(), ("train",)])
def test_program_of_the_hyperparameters(words: tuple[str, ...]) -> None:
    assert program(files(**GIVEN), *words) == Program("/opt/ml/code/train.py", RECORDED)


def test_environment_is_that_of_the_toolkit() -> None:
    given = {**files(hosts=["algo-1"], gpus=0, **GIVEN), **{f"/sys/devices/system/cpu/{name}": "" for name in ("cpu0", "cpu1", "cpuidle")}}
    found = dict(job(given, "/opt/ml/code/train.py").env)
    assert {name: found[name] for name in RECORDED_ENVIRONMENT} == RECORDED_ENVIRONMENT


@pytest.mark.parametrize(
    ("submitted", "path", "folder"),
    [
        ("", "/opt/ml/code/src/train.py", "/opt/ml/code"),
        ("s3://bucket/sourcedir.tar.gz", "/opt/ml/code/src/train.py", "s3://bucket/sourcedir.tar.gz"),
        ("/src", "/opt/ml/code/src/train.py", "/src"),
        ("", "/other/run.py", "/other"),
    ],
)
def test_an_entry_point_in_a_folder_has_its_whole_name(submitted: str, path: str, folder: str) -> None:
    """As sagemaker_training/environment.py tells it: name and folder are those of the job, whatever file they come to."""
    told = {
        "sagemaker_program": '"src/train.py"',
        "sagemaker_submit_directory": json.dumps(submitted),
        "sagemaker_container_log_level": "10",
    }
    found = dict(job({**files(**told), "/opt/ml/code/src/train.py": ""}, path).env)
    entry = "run.py" if path.endswith("run.py") else "src/train.py"
    assert (found["SM_USER_ENTRY_POINT"], found["SM_MODULE_NAME"]) == (entry, entry[: -len(".py")])
    assert (found["SM_MODULE_DIR"], found["SM_LOG_LEVEL"]) == (folder, "10")


@pytest.mark.parametrize("name", ["SM_LOG_LEVEL", "SM_MODULE_DIR", "SM_MODULE_NAME", "SM_USER_ENTRY_POINT", "SAGEMAKER_PROGRAM"])
def test_one_variable_of_an_image_is_no_sign(name: str) -> None:
    assert platforms.choose(helpers.reader({name: "default_user_module_name"})).NAME == "local"


def test_variables_that_are_set_stay() -> None:
    assert "SM_MODEL_DIR" not in dict(job(files(), SM_MODEL_DIR="/own").env)


@pytest.mark.parametrize(
    ("given", "words", "env", "expected"),
    [
        (files(), (), {}, None),
        (files(), ("train",), {}, None),
        (files(**GIVEN), ("run.py", "--a"), {}, None),
        (files(), (), {"SAGEMAKER_PROGRAM": "train.py"}, Program("/opt/ml/code/train.py")),
        (files(epochs="3"), (), {"SAGEMAKER_PROGRAM": "run.sh"}, Program("/opt/ml/code/run.sh", ("--epochs", "3"))),
        (
            {**files(), "/src/run.py": ""}, (), {"SAGEMAKER_PROGRAM": "run.py", "SAGEMAKER_SUBMIT_DIRECTORY": "/src"},
            Program("/src/run.py"),
        ),
        ({}, (), {"SAGEMAKER_PROGRAM": "train.py"}, None),
    ],
)  # fmt: skip
def test_program(given: dict[str, str], words: tuple[str, ...], env: dict[str, str], expected: Program | None) -> None:
    assert program(given, *words, **env) == expected


@pytest.mark.parametrize(
    ("path", "folder"), [("/opt/ml/code/train.py", "/opt/ml/code"), ("train.py", None), ("/opt/ml/code/other.py", None)]
)
def test_the_program_that_it_names_runs_in_its_folder(path: str, folder: str | None) -> None:
    """As with the toolkit; any other program runs where the image says, which is where a relative path starts from."""
    plan = helpers.plan({}, program=path, files=files(**GIVEN), method="spawn", python="venv/bin/python")
    assert [process.cwd for process in plan.processes] == [folder, folder]
    assert {process.argv[0] for process in plan.processes} == {f"{helpers.CWD}/venv/bin/python" if folder else "venv/bin/python"}


def test_nodes_that_share_a_log_folder_have_one_each_and_one_attempt() -> None:
    hosts = {"SM_HOSTS": '["algo-1", "algo-2"]', "RANKLAUNCH_LOG_DIR": "/fsx"}
    begun = {"/fsx/node_0/attempt_1/verdict.json": "", "/fsx/node_0/attempt_2/plan.json": ""}
    found = [job(begun, **hosts, SM_CURRENT_HOST=name) for name in ("algo-1", "algo-2")]
    assert [(each.log_dir, each.attempt) for each in found] == [("/fsx/node_0", 3), ("/fsx/node_1", 2)]
    assert job({}, SM_HOSTS='["algo-1"]', SM_CURRENT_HOST="algo-1", RANKLAUNCH_LOG_DIR="/fsx").log_dir == "/fsx"


def test_arguments_of_one_letter() -> None:
    assert sagemaker.arguments({"b": 1, "aa": None}) == ["--aa", "", "-b", "1"]


def test_code_that_is_in_s3_is_refused() -> None:
    folder = "s3://bucket/sourcedir.tar.gz"
    given = files(code=False, sagemaker_program='"train.py"', sagemaker_submit_directory=json.dumps(folder))
    found = program(given)
    assert found
    message = refused(given, found.path)
    assert all(word in message for word in (f"'{folder}'", "/opt/ml/code/train.py is not there")), message


# The reason of a failure


def test_failure_file() -> None:
    assert platforms.failure_file(helpers.reader({}, files())) == "/opt/ml/output/failure"
    assert platforms.failure_file(helpers.reader({"SAGEMAKER_BASE_DIR": "/x", "SM_HOSTS": "a"})) == "/x/output/failure"
    assert platforms.failure_file(helpers.reader({})) == ""
    assert platforms.failure_file(helpers.reader({}, platform="sagemaker")) == "/opt/ml/output/failure"


def test_reason_is_written_on_failure_alone_and_never_over_another(tmp_path: Path) -> None:
    failure = tmp_path / "output" / "failure"
    record = Record(str(tmp_path), "", str(failure))
    record.last_words("all is well", 0)
    assert not failure.exists()
    record.last_words("rank 3 exited with code 1", 1)
    record.last_words("another reason", 2)
    assert failure.read_text() == "rank 3 exited with code 1\n"


PROGRAM = "import os, sys; print(sys.argv[1:], os.environ['SM_HP_EPOCHS'], flush=True); sys.exit(7)"


@pytest.mark.processes
@pytest.mark.parametrize(
    ("host", "code", "reason"),
    [
        ("localhost", 7, "rank 0 on node 0 exited with code 7; its last line: ['--epochs', '3'] 3\n"),
        ("algo-9", 78, "expected one of the hosts localhost; or set RANKLAUNCH_NODE\n"),
    ],
    ids=["program", "environment"],
)
def test_run_as_sagemaker_starts_it(tmp_path: Path, host: str, code: int, reason: str) -> None:
    for path, text in files(host, ["localhost"], gpus=0, epochs="3", sagemaker_program='"train.py"').items():
        place = tmp_path / Path(path).relative_to("/opt/ml")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text or PROGRAM)
    env = {**os.environ, "SAGEMAKER_BASE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "ranklaunch", "run", "--python", sys.executable, "--log-dir", str(tmp_path / "logs"), "train"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, done.stderr
    assert (tmp_path / "output" / "failure").read_text().endswith(reason)
    assert ("['--epochs', '3'] 3" in done.stdout) is (code == 7)


@pytest.mark.parametrize("env", [{}, {"SM_CURRENT_HOST": "algo-1"}])
def test_hosts_that_are_none_are_refused(env: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="RANKLAUNCH_HOSTS='bad/'"):
        helpers.plan({"SM_HOSTS": '["algo-1"]', "RANKLAUNCH_HOSTS": "bad/", **env})


@pytest.mark.parametrize("value", ["b\0c", "\ud800"])
def test_a_hyperparameter_that_no_argument_can_hold_is_refused(value: str) -> None:
    given = {**files(), f"{CONFIG}/hyperparameters.json": json.dumps({"lr": value})}
    assert "no argument can hold the hyperparameter 'lr'" in refused(given)
