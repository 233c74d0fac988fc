"""`ranklaunch plan --spec`: the plan of a body that `ranklaunch spec modelarts` has written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import helpers
import pytest

JOB = (
    "modelarts",
    "--name",
    "llm",
    "--image",
    "train:1",
    "--device-kind",
    "npu",
    "--pool-id",
    "P",
    "--method",
    "torchrun",
)
CODE = ("--set", "modelarts.codeDir=/bucket/code/")
Body = dict[str, Any]


@pytest.fixture
def body(tmp_path: Path) -> Callable[..., Path]:
    """A body as the command writes it, changed by `change`."""

    def write(*words: str, change: Callable[[Body], None] = lambda data: None) -> Path:
        found = helpers.call("spec", *JOB, *words)
        assert found.code == 0, found.err
        data = json.loads(found.out)
        change(data)
        (tmp_path / "job.json").write_text(json.dumps(data), encoding="utf-8")
        return tmp_path / "job.json"

    return write


TWO = ("--nodes", "2", "--devices", "8", *CODE, "--", "train.py", "--epochs", "3")


def plans(path: Path, *words: str) -> Any:
    found = helpers.call("plan", "--spec", str(path), "--format", "json", *words)
    assert found.code == 0, found.err
    return json.loads(found.out)


def test_every_node_is_planned_with_the_script_where_the_platform_puts_the_code(
    body: Callable[..., Path],
) -> None:
    found = plans(body(*TWO), "--all-nodes")
    assert [(plan["job"]["node_index"], plan["platform"], plan["method"]) for plan in found] == [
        (0, "modelarts", "torchrun"),
        (1, "modelarts", "torchrun"),
    ]
    for node, plan in enumerate(found):
        (process,) = plan["processes"]
        assert process["argv"][-3:] == [
            "/home/ma-user/modelarts/user-job-dir/code/train.py",
            "--epochs",
            "3",
        ]
        assert {f"--node_rank={node}", "--nnodes=2", "--nproc_per_node=8"} <= set(process["argv"])
        assert plan["job"]["accelerator"] == "npu"


def test_one_node_is_planned(body: Callable[..., Path]) -> None:
    assert plans(body(*TWO), "--node", "1")["job"]["node_index"] == 1


def test_the_plan_is_that_of_the_container_s_own_environment(body: Callable[..., Path]) -> None:
    """The body in advance and the environment that ModelArts would set give one command."""
    ahead = plans(body(*TWO))
    job = ahead["job"]["name"]
    hosts = ",".join(node["host"] for node in ahead["job"]["nodes"])
    env = helpers.modelarts(2, 8, 0, VC_WORKER_HOSTS=hosts)
    env = {
        **env,
        "MA_VJ_NAME": job,
        "MA_CURRENT_INSTANCE_NAME": f"{job}-worker-0",
        "RANKLAUNCH_ACCELERATOR": "npu",
    }
    script = "/home/ma-user/modelarts/user-job-dir/code/train.py"
    words = ("--format", "json", "--method", "torchrun", "--", script, "--epochs", "3")
    found = helpers.call("plan", *words, env=env)
    assert found.code == 0, found.err
    assert json.loads(found.out)["processes"][0]["argv"] == ahead["processes"][0]["argv"]


def test_options_come_before_the_environment_of_the_body(
    body: Callable[..., Path],
    tmp_path: Path,
) -> None:
    def change(data: Body) -> None:
        data["algorithm"]["environments"]["MASTER_ADDR"] = "10.0.0.9"  # by hand: `spec` refuses to write it

    path = body("--env", "RANKLAUNCH_EXTRA_TORCHRUN_PARAMS=--max_restarts=1", *TWO, change=change)
    of_image = "RANKLAUNCH_PYTHON=/opt/conda/bin/python\nMA_NUM_HOSTS=7\n"
    (tmp_path / "image.env").write_text(of_image, encoding="utf-8")
    plan = plans(path, "--env-file", str(tmp_path / "image.env"))
    values = {each["name"]: each["value"] for each in plan["values"]}
    assert (values["nodes"], values["python"], values["extra_torchrun_params"]) == (
        "2",
        "/opt/conda/bin/python",
        "--max_restarts=1",
    )
    assert "MASTER_ADDR" in plan["processes"][0]["unset"]
    assert plans(path, "--method", "spawn")["method"] == "spawn"


def test_options_of_the_command_count_and_its_working_folder(body: Callable[..., Path]) -> None:
    def change(data: Body) -> None:
        run = "exec /opt/ranklaunch/bin/ranklaunch run --method plain"
        data["algorithm"]["command"] = f"{run} -- ${{MA_JOB_DIR}}/x.sh '${{MA_JOB_DIR}}'"
        data["algorithm"]["working_dir"] = "/home/ma-user/work"
        del data["algorithm"]["environments"]["RANKLAUNCH_METHOD"]

    plan = plans(body(*TWO, change=change))
    assert plan["method"] == "plain"
    assert plan["processes"][0]["argv"][-2:] == [
        "/home/ma-user/modelarts/user-job-dir/x.sh",
        "${MA_JOB_DIR}",
    ]
    path = body("--working-dir", "/home/ma-user/work", "--env", "RANKLAUNCH_LOG_DIR=logs", *TWO)
    assert plans(path)["processes"][0]["log"].startswith("/home/ma-user/work/logs/")


ENVIRONMENT = "source /usr/local/Ascend/cann/set_env.sh"


def test_lines_before_ranklaunch_are_left_out_of_the_plan(body: Callable[..., Path]) -> None:
    setup = json.dumps([ENVIRONMENT, 'export A="x; y" || true'])
    with_setup = plans(body("--set", f"modelarts.setup={setup}", *TWO), "--all-nodes")
    assert with_setup == plans(body(*TWO), "--all-nodes")


@pytest.mark.parametrize(
    "command",
    [
        f"{ENVIRONMENT} && exec ranklaunch run x.py",
        f"{ENVIRONMENT}; exec /opt/bin/ranklaunch run x.py",
        f"if [ -e '/a b' ]; then {ENVIRONMENT}; fi\nexec ranklaunch run x.py",
        "echo '&& exec ranklaunch run y.py' && exec ranklaunch run x.py",
    ],
)
def test_lines_before_ranklaunch_may_be_written_by_hand(
    body: Callable[..., Path],
    command: str,
) -> None:
    plan = plans(body(*TWO, change=put(COMMAND, command)))
    assert plan["processes"][0]["argv"][-1] == "x.py"


def test_parameters_inputs_and_outputs_reach_the_program(body: Callable[..., Path]) -> None:
    def change(data: Body) -> None:
        data["algorithm"]["parameters"] = [{"name": "lr", "value": "0.1"}]
        data["algorithm"]["inputs"] += [{"name": "MORE", "access_method": "env"}]

    channels = ("inputs", "data_url"), ("outputs", "train_url")
    words = [f'modelarts.{kind}=[{{"name": "{name}", "obsUrl": "/b/"}}]' for kind, name in channels]
    plan = plans(body(*(word for each in words for word in ("--set", each)), *TWO, change=change))
    assert plan["processes"][0]["argv"][-3:] == [
        "--lr=0.1",
        "--data_url=/home/ma-user/modelarts/inputs/data_url_0",
        "--train_url=/home/ma-user/modelarts/outputs/train_url_0",
    ]


def test_a_rank_table_is_waited_for(body: Callable[..., Path], tmp_path: Path) -> None:
    plan = plans(body("--method", "ranktable", *TWO), "--root", str(tmp_path))
    waits = {wait["for"]: wait["what"] for wait in plan["waits"]}
    assert waits["rank table"] == "/user/config/jobstart_hccl.json"


def test_a_flavor_without_a_size_asks_for_the_devices(body: Callable[..., Path]) -> None:
    path = body("--flavor", "special", *TWO)
    found = helpers.call("plan", "--spec", str(path))
    said = "the flavor does not tell the number of devices of a node: give --slots N"
    assert (found.code, found.err) == (78, f"ranklaunch: --spec {path}: {said}\n")
    assert [node["slots"] for node in plans(path, "--slots", "4")["job"]["nodes"]] == [4, 4]

    def change(data: Body) -> None:
        data["spec"]["resource"]["main_container_customized_flavor"] = {"accelerator_num": 2}

    custom = plans(body("--flavor", "special", *TWO, change=change))
    assert [node["slots"] for node in custom["job"]["nodes"]] == [2, 2]


def put(path: str, value: object) -> Callable[[Body], None]:
    """A change of one field, "a.b"; None removes it."""

    def change(data: Body) -> None:
        *parents, name = path.split(".")
        for parent in parents:
            data = data[parent]
        data.pop(name) if value is None else data.update({name: value})

    return change


COMMAND = "algorithm.command"


WRONG = {
    "preset image": (
        put("algorithm.engine", {"engine_id": "x"}),
        "algorithm.engine.image_url: expected a text",
    ),
    "no spec": (put("spec", None), "spec: expected an object"),
    "nodes as text": (
        put("spec.resource.node_count", "2"),
        "spec.resource.node_count='2': expected a whole number from 1",
    ),
    "no nodes": (
        put("spec.resource.node_count", 0),
        "spec.resource.node_count=0: expected a whole number from 1",
    ),
    "numbers in the environment": (
        put("algorithm.environments", {"A": 1}),
        "algorithm.environments: expected texts by name",
    ),
    "tasks": (
        put("tasks", [{"role": "learner"}]),
        "tasks: expected a job with one kind of node, without tasks",
    ),
    "another command": (
        put(COMMAND, "python train.py"),
        "algorithm.command='python train.py': expected ranklaunch run [OPTIONS] [--] PROGRAM",
    ),
    "two commands": (
        put(COMMAND, "cd x && ranklaunch run x"),
        "; lines before it end with `&& exec ranklaunch run ...`",
    ),
    "a command in quotes": (
        put(COMMAND, 'ranklaunch run "`id`"'),
        "expected one command without '`id`'",
    ),
    "an open quote": (put(COMMAND, "ranklaunch run 'x"), "No closing quotation"),
    "a variable of the image": (
        put(COMMAND, "ranklaunch run $CODE/x.py"),
        "is not set by the body; give the image's variables by --env-file FILE",
    ),
    "working folder": (
        put("algorithm.working_dir", "x"),
        "algorithm.working_dir='x': expected a path",
    ),
    "inputs": (
        put("algorithm.inputs", {"name": "x"}),
        "algorithm.inputs: expected a list of objects",
    ),
}


@pytest.mark.parametrize(("change", "said"), WRONG.values(), ids=WRONG)
def test_what_is_no_such_body_is_refused(
    body: Callable[..., Path],
    change: Callable[[Body], None],
    said: str,
) -> None:
    path = body(*TWO, change=change)
    found = helpers.call("plan", "--spec", str(path))
    assert (found.code, len(found.err.splitlines()), found.out) == (78, 1, "")
    assert found.err.startswith(f"ranklaunch: --spec {path}: ")
    assert said in found.err
    assert "reads the JSON that `ranklaunch spec modelarts` writes" in found.err


OTHERS = {
    "another kind": ("kind: Job\n", "not JSON: "),
    "a list": ("[]", "the body: expected an object"),
    "an environment": ('{"MA_NUM_HOSTS": "2"}', "metadata: expected an object"),
}


@pytest.mark.parametrize(("text", "said"), OTHERS.values(), ids=OTHERS)
def test_a_file_that_is_none_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "x").write_text(text, encoding="utf-8")
    found = helpers.call("plan", "--spec", str(tmp_path / "x"))
    assert (found.code, found.out) == (78, "")
    assert said in found.err


def test_the_command_line_is_wrong(tmp_path: Path, body: Callable[..., Path]) -> None:
    found = helpers.call("plan", "--spec", str(tmp_path / "none.json"))
    assert (found.code, found.err) == (
        2,
        f"ranklaunch: --spec {tmp_path}/none.json: No such file or directory\n",
    )
    found = helpers.call("plan", "--spec", str(body(*TWO)), "train.py")
    assert (found.code, found.err.splitlines()[0]) == (
        2,
        "ranklaunch: --spec names a job with its own program: leave out train.py",
    )


def test_one_node_or_all_are_shown(body: Callable[..., Path]) -> None:
    words = ("--node", "1", "--all-nodes")
    found = helpers.call("plan", "--spec", str(body(*TWO)), *words)
    assert (found.code, found.err.splitlines()[0]) == (
        2,
        "ranklaunch: --all-nodes and --node: expected one of the two, for every node or for one",
    )


def test_the_variable_is_read_too(body: Callable[..., Path]) -> None:
    found = helpers.call("plan", env={"RANKLAUNCH_SPEC": str(body(*TWO))})
    assert found.code == 0, found.err
    assert "world     16 ranks on 2 nodes, npu" in found.out


def test_the_example_is_planned() -> None:
    found = plans(helpers.ROOT / "examples" / "modelarts" / "torchrun-npu.json", "--all-nodes")
    script = "/home/ma-user/modelarts/user-job-dir/code/examples/ddp_digits.py"
    assert [plan["processes"][0]["argv"][-3:] for plan in found] == [[script, "--epochs", "5"]] * 2
