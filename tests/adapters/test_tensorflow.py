"""Method tensorflow: who is a ps and who a worker, where all of them are, and what each is told of it."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import helpers
import pytest

from ranklaunch.env import parse
from ranklaunch.env.job import Job, Program
from ranklaunch.env.parse import Endpoint
from ranklaunch.errors import ConfigError
from ranklaunch.plan import planning
from ranklaunch.plan.model import Plan
from ranklaunch.plan.planning import Request

JOB = helpers.JOB
POD = "MA_CURRENT_INSTANCE_NAME"


def names(task: str, count: int, port: str = ":6234") -> list[str]:
    return [f"{JOB}-{task}-{i}.{JOB}{port}" for i in range(count)]


def array(task: str, count: int) -> str:
    return f"[{','.join(names(task, count))}]"


def modelarts(task: str = "worker", index: int = 0, nodes: int = 2, **more: str) -> dict[str, str]:
    """What ModelArts sets in a container of a TensorFlow job."""
    given = helpers.modelarts(nodes, 0 if task == "ps" else 8, index)
    lists = {"TF_PS_HOSTS": array("ps", nodes), "TF_WORKER_HOSTS": array("worker", nodes)}
    return {**given, **lists, "MA_TASK_NAME": task, POD: f"{JOB}-{task}-{index}", **more}


def without(env: dict[str, str], *removed: str) -> dict[str, str]:
    return {name: value for name, value in env.items() if name not in removed}


def started(plan: Plan) -> Any:
    """The one process of a container."""
    (process,) = (*plan.services, *plan.processes)
    return process


def appended(plan: Plan) -> list[str]:
    return [word for word in started(plan).argv if word.startswith(("--task_index", "--ps_hosts", "--worker_hosts", "--job_name"))]


def refused(env: dict[str, str], **options: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        helpers.plan(env, **options)
    return list(caught.value.problems)


def test_without_the_names_of_all_hosts_it_is_refused() -> None:
    """The program would be told of workers at ":2222"."""
    (problem,) = refused(helpers.only_first_named(2, 2, 0), method="tensorflow")
    assert problem.startswith("node 1 has no name, and method tensorflow needs the names of all nodes: name them by --hosts")
    named = helpers.only_first_named(2, 2, 0, RANKLAUNCH_HOSTS="a,b", RANKLAUNCH_MASTER_ADDR="a")
    assert "--worker_hosts=a:2222,b:2222" in started(helpers.plan(named, method="tensorflow")).argv


def places(job: Job) -> list[tuple[str, str, int]]:
    return [(node.host, node.task, node.task_index) for node in job.nodes]


# What runs


@pytest.mark.parametrize("index", [0, 1])
def test_a_worker(index: int) -> None:
    plan = helpers.plan(modelarts("worker", index), "--lr", "0.1")
    assert (plan.method, plan.why) == ("tensorflow", "the job has parameter servers (ps) and workers")
    assert plan.services == ()
    assert plan.processes[0].argv == (
        "python",
        "-u",
        "train.py",
        "--lr",
        "0.1",
        f"--task_index={index}",
        f"--ps_hosts={','.join(names('ps', 2))}",
        f"--worker_hosts={','.join(names('worker', 2))}",
        "--job_name=worker",
    )
    process = plan.processes[0]
    assert (process.rank, process.local_rank, process.tag, process.may_end) == (index, 0, f"[rank {index}] ", False)
    assert process.log.endswith(f"/attempt_1/rank_{index}.log")
    assert (plan.job.node_index, plan.job.world_size, plan.followers) == (index, 2, 2)


@pytest.mark.parametrize("index", [0, 1])
def test_a_ps_serves_and_follows(index: int) -> None:
    plan = helpers.plan(modelarts("ps", index))
    assert plan.processes == ()
    (service,) = plan.services
    assert (service.name, service.rank, service.local_rank, service.tag, service.may_end) == (
        f"ps {index}",
        None,
        None,
        f"[ps {index}] ",
        True,
    )
    assert service.log.endswith(f"/attempt_1/ps_{index}.log")
    assert appended(plan)[0] == f"--task_index={index}"
    assert appended(plan)[-1] == "--job_name=ps"
    assert (plan.job.node_index, plan.job.node.name, list(plan.job.node.ranks)) == (2 + index, f"ps {index}", [])
    assert plan.muster
    assert (plan.muster.followers, plan.muster.hosts[0]) == (2, f"{JOB}-worker-0.{JOB}")


def test_tf_config_says_the_same_in_every_container() -> None:
    for task, index in (("worker", 0), ("worker", 1), ("ps", 0), ("ps", 1)):
        process = started(helpers.plan(modelarts(task, index)))
        assert json.loads(process.env["TF_CONFIG"]) == {
            "cluster": {"ps": names("ps", 2), "worker": names("worker", 2)},
            "task": {"type": task, "index": index},
        }


def test_one_node_is_told_nothing() -> None:
    plan = helpers.plan(helpers.modelarts(1, 8), "--lr", "0.1", method="tensorflow")
    assert plan.processes[0].argv == ("python", "-u", "train.py", "--lr", "0.1")
    assert "TF_CONFIG" not in plan.processes[0].env
    assert (plan.services, plan.followers, plan.muster, plan.job.world_size) == ((), 0, None, 1)


def test_workers_alone() -> None:
    plan = helpers.plan(helpers.modelarts(2, 8, 1), method="tensorflow")
    hosts = ",".join(names("worker", 2, ":2222"))
    assert appended(plan) == ["--task_index=1", f"--worker_hosts={hosts}", "--job_name=worker"]
    assert json.loads(plan.processes[0].env["TF_CONFIG"])["cluster"] == {"worker": hosts.split(",")}
    assert plan.followers == 0


@pytest.mark.parametrize(
    ("args", "left", "warned"),
    [
        (("--task_index=9",), ["--ps_hosts", "--worker_hosts", "--job_name"], ["--task_index"]),
        (("--job_name", "worker"), ["--task_index", "--ps_hosts", "--worker_hosts"], ["--job_name"]),
        (("--ps_hosts=x:1", "--worker_hosts=y:1"), ["--task_index", "--job_name"], ["--ps_hosts", "--worker_hosts"]),
        (("--job_names=x", "task_index"), ["--task_index", "--ps_hosts", "--worker_hosts", "--job_name"], []),
    ],
)
def test_arguments_that_the_user_gives_are_not_repeated(args: tuple[str, ...], left: list[str], warned: list[str]) -> None:
    plan = helpers.plan(modelarts(), *args)
    assert [word.partition("=")[0] for word in plan.processes[0].argv[3 + len(args) :]] == left
    said = [warning for warning in plan.warnings if "the program's own" in warning]
    assert [warning.split()[3] for warning in said] == warned


@helpers.for_each(helpers.HOSTILE)
def test_arguments_arrive_unharmed(value: str) -> None:
    for task in ("worker", "ps"):
        assert started(helpers.plan(modelarts(task), value, "--x")).argv[3:5] == (value, "--x")


def test_other_programs() -> None:
    assert started(helpers.plan(modelarts("ps"), program="train.sh")).argv[:2] == ("bash", "train.sh")
    assert started(helpers.plan(modelarts("ps"), program="pkg.train", module=True)).argv[:4] == ("python", "-u", "-m", "pkg.train")


def test_another_tf_config_is_replaced_and_this_is_said() -> None:
    told = json.dumps({"cluster": {"ps": names("ps", 2), "worker": names("worker", 2)}, "task": {"type": "ps", "index": 9}})
    assert not helpers.plan(modelarts(TF_CONFIG=told)).warnings
    for other in ('{"cluster": {"worker": ["x:1"]}}', "{", "[]", '"x"'):
        plan = helpers.plan(modelarts(TF_CONFIG=other))
        assert any("TF_CONFIG" in warning and "replaced" in warning for warning in plan.warnings)
        assert json.loads(plan.processes[0].env["TF_CONFIG"])["task"] == {"type": "worker", "index": 0}


# Where they are


@helpers.for_each(
    [
        ("a", [("a", 0)]),
        ("a:1", [("a", 1)]),
        (" a:1 , b:2 ", [("a", 1), ("b", 2)]),
        ("[a:1,b:2]", [("a", 1), ("b", 2)]),
        ('["a:1", "b:2"]', [("a", 1), ("b", 2)]),
        ("['a:1', 'b:2']", [("a", 1), ("b", 2)]),
        ('"a:1,b:2"', [("a", 1), ("b", 2)]),
        ("[ ]", []),
        ("192.0.2.1:2222", [("192.0.2.1", 2222)]),
        ("[fd00::1]:2222", [("fd00::1", 2222)]),
        ("[fd00::1]:2222,[fd00::2]:2222", [("fd00::1", 2222), ("fd00::2", 2222)]),
        ("[[fd00::1]:2222,[fd00::2]:2222]", [("fd00::1", 2222), ("fd00::2", 2222)]),
        ("fd00::1,fd00::2", [("fd00::1", 0), ("fd00::2", 0)]),
        ("[fd00::1],[fd00::2]", [("fd00::1", 0), ("fd00::2", 0)]),
        ("[fd00::1]", [("fd00::1", 0)]),
    ]
)
def test_lists_in_every_form(value: str, expected: list[tuple[str, int]]) -> None:
    assert parse.endpoints(value) == tuple(Endpoint(*each) for each in expected)


@helpers.for_each(
    [
        "",
        ",",
        "a,",
        "a:",
        "a:b",
        "a:0",
        "a:65536",
        "a:1:2",
        "[a:1",
        "a:1]",
        "[[a:1]",
        "a b:1",
        "-a:1",
        "http://a:1",
        "{}",
        "[{}]",
        "a:1;b:2",
    ]
)
def test_lists_that_are_none(value: str) -> None:
    with pytest.raises(ValueError, match="expected HOST:PORT"):
        parse.endpoints(value)


@pytest.mark.parametrize("text", ["[" * 200_000, "[a" * 100_000, "a," * 100_000 + "[", "[" + "[a]," * 50_000])
def test_hostile_lists_are_refused_at_once(text: str) -> None:
    began = time.process_time()
    with pytest.raises(ValueError, match="expected HOST:PORT"):
        parse.endpoints(text)
    assert time.process_time() - began < 5


@pytest.mark.parametrize("form", ["{}", "[{}]", '["{}"]', "['{}']", "[ '{}' ]"])
def test_quotes_and_brackets_do_not_matter(form: str) -> None:
    def listed(task: str) -> str:
        between = form[form.index("{") - 1] if "'" in form or '"' in form else ""
        return form.format(f"{between},{between}".join(names(task, 2)))

    plan = helpers.plan(modelarts(TF_PS_HOSTS=listed("ps"), TF_WORKER_HOSTS=listed("worker")))
    assert appended(plan) == appended(helpers.plan(modelarts()))


def test_volcanos_lists_have_no_ports() -> None:
    env = without(modelarts("ps", 1, VC_PS_NUM="2", VC_PS_HOSTS=",".join(names("ps", 2, ""))), "TF_PS_HOSTS", "TF_WORKER_HOSTS")
    hosts = [f"--{task}_hosts={','.join(names(task, 2, ':2222'))}" for task in ("ps", "worker")]
    assert appended(helpers.plan(env))[1:3] == hosts
    other = helpers.plan({**env, "RANKLAUNCH_TENSORFLOW_PORT": "7000"})
    assert appended(other)[1] == hosts[0].replace("2222", "7000")


@pytest.mark.parametrize("by_file", [True, False])
@pytest.mark.parametrize("task", ["ps", "worker"])
def test_without_any_list(task: str, by_file: bool) -> None:
    """Volcano leaves them out where they would be too long: its files tell, or the names are made as it makes them."""
    env = without(modelarts(task, 1), "TF_PS_HOSTS", "TF_WORKER_HOSTS", "VC_WORKER_HOSTS")
    files = {f"/etc/volcano/{each}.host": "\n".join(names(each, 2, "")) for each in ("ps", "worker")} if by_file else {}
    env = env if by_file else {**env, "VC_PS_NUM": "2"}
    plan = helpers.plan(env, files=files)
    assert [node.host for node in plan.job.nodes] == names("worker", 2, "") + names("ps", 2, "")
    assert plan.job.node_index == 1 + 2 * (task == "ps")


def test_lists_of_the_user_come_first() -> None:
    plan = helpers.plan(modelarts("ps", 0, RANKLAUNCH_PS_HOSTS="p:1", RANKLAUNCH_WORKER_HOSTS="w0:1,w1:2"))
    assert places(plan.job) == [("w0", "worker", 0), ("w1", "worker", 1), ("p", "ps", 0)]
    assert [node.port for node in plan.job.nodes] == [1, 2, 1]


@pytest.mark.parametrize(("task", "index", "node"), [("worker", "1", 1), ("ps", "0", 2)])
def test_where_there_is_no_platform(task: str, index: str, node: int) -> None:
    env = {"RANKLAUNCH_HOSTS": "n0,n1", "RANKLAUNCH_PS_HOSTS": "n2:7000", "RANKLAUNCH_TASK": task, "RANKLAUNCH_NODE": index}
    plan = helpers.plan(env)
    assert places(plan.job) == [("n0", "worker", 0), ("n1", "worker", 1), ("n2", "ps", 0)]
    assert (plan.method, plan.job.node_index) == ("tensorflow", node)
    assert appended(plan) == [f"--task_index={index}", "--ps_hosts=n2:7000", "--worker_hosts=n0:2222,n1:2222", f"--job_name={task}"]


def config(task: str = "worker", index: object = 1, **cluster: object) -> str:
    return json.dumps({"cluster": cluster or {"ps": ["p:2222"], "worker": ["w0:2222", "w1:2222"]}, "task": {"type": task, "index": index}})


@pytest.mark.parametrize(("task", "index", "node"), [("worker", 1, 1), ("worker", "1", 1), ("ps", 0, 2)])
def test_by_tf_config(task: str, index: object, node: int) -> None:
    plan = helpers.plan({"TF_CONFIG": config(task, index)})
    assert (plan.method, plan.job.node_index) == ("tensorflow", node)
    assert json.loads(started(plan).env["TF_CONFIG"]) == {
        **json.loads(config(task, index)),
        "task": {"type": task, "index": int(str(index))},
    }
    assert not plan.warnings


@pytest.mark.parametrize(
    ("text", "warned"),
    [
        (config(worker=["w0:1"]), False),  # MultiWorkerMirroredStrategy: the program's own matter
        (config(ps=["p:1"], chief=["c:1"]), False),
        ("{", True),
        ("[]", True),
        ('{"cluster": {"ps": ["p:1"], "worker": 3}, "task": {"type": "ps", "index": 0}}', True),
        ('{"cluster": {"ps": ["p:1"], "worker": ["w:1"]}}', True),
        ('{"cluster": {"ps": ["p:1"], "worker": ["w:1"]}, "task": {"type": "ps", "index": -1}}', True),
        ("[" * 100_000, True),
    ],
)
def test_a_tf_config_that_is_not_read(text: str, warned: bool) -> None:
    plan = helpers.plan({"TF_CONFIG": text})
    assert (plan.method, len(plan.job.nodes)) == ("plain", 1)
    assert any("TF_CONFIG" in warning for warning in plan.warnings) is warned


def test_a_tf_config_of_another_job_on_modelarts() -> None:
    plan = helpers.plan(helpers.modelarts(2, 8, 1, TF_CONFIG=config()))
    assert (plan.method, plan.job.node_index, plan.job.world_size) == ("tensorflow", 1, 2)
    other = helpers.plan(helpers.modelarts(4, 8, 1, TF_CONFIG=config()))
    assert (other.method, len(other.job.nodes)) == ("torchrun", 4)
    assert any("TF_CONFIG is another job's" in warning for warning in other.warnings)


@pytest.mark.parametrize(("task", "index"), [("worker", 2), ("evaluator", 0)])
def test_a_tf_config_without_its_own_task(task: str, index: int) -> None:
    assert any(f"{task} {index} is not in its cluster" in problem for problem in refused({"TF_CONFIG": config(task, index)}))


# What is refused


@helpers.for_each(
    [
        ({"MA_TASK_NAME": "chief"}, ["MA_TASK_NAME=chief", "expected ps or worker"]),
        ({"VC_TASK_INDEX": "2", POD: f"{JOB}-worker-2"}, ["VC_TASK_INDEX=2", "expected 0 to 1, for 2 nodes"]),
        ({"MA_TASK_NAME": "ps", "VC_TASK_INDEX": "2", POD: f"{JOB}-ps-2"}, ["expected 0 to 1, for 2 nodes"]),
        ({"TF_PS_HOSTS": array("ps", 3)}, ["TF_PS_HOSTS names 3 hosts, but MA_NUM_HOSTS is 2"]),
        ({"TF_WORKER_HOSTS": array("worker", 1)}, ["TF_WORKER_HOSTS names 1 hosts, but MA_NUM_HOSTS is 2"]),
        ({"VC_PS_NUM": "1"}, ["TF_PS_HOSTS names 2 hosts, but VC_PS_NUM is 1"]),
        ({"TF_WORKER_HOSTS": array("ps", 2)}, [f"{JOB}-ps-0.{JOB}:6234 is named 2 times"]),
        ({"TF_PS_HOSTS": "[a:1,a:1]"}, ["a:1 is named 2 times"]),
        ({"TF_PS_HOSTS": "[a:x,b:1]"}, ["TF_PS_HOSTS='[a:x,b:1]'", "expected HOST:PORT"]),
        ({POD: f"{JOB}-worker-1"}, ["contradicts", POD]),
    ]
)
def test_contradictions_on_modelarts(env: dict[str, str], words: list[str]) -> None:
    problems = "\n".join(refused(modelarts(**env)))
    for word in words:
        assert word in problems


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"RANKLAUNCH_TASK": "chief"}, ["RANKLAUNCH_TASK=chief", "expected ps or worker"]),
        ({"RANKLAUNCH_NODE": "2"}, ["RANKLAUNCH_NODE=2", "for 2 workers"]),
        ({"RANKLAUNCH_TASK": "ps", "RANKLAUNCH_NODE": "1"}, ["for 1 ps"]),
        ({"RANKLAUNCH_NODE": ""}, ["--node (RANKLAUNCH_NODE) does not say which one"]),
        ({"RANKLAUNCH_NODES": "3"}, ["2 workers are named", "RANKLAUNCH_NODES=3"]),
        ({"RANKLAUNCH_HOSTS": ""}, ["--worker-hosts (RANKLAUNCH_WORKER_HOSTS)", "--hosts (RANKLAUNCH_HOSTS)"]),
        ({"RANKLAUNCH_PS_HOSTS": "n1"}, ["n1 is named 2 times"]),
        ({"RANKLAUNCH_MUSTER": "off"}, ["RANKLAUNCH_MUSTER", "muster"]),
    ],
)
def test_contradictions_elsewhere(env: dict[str, str], words: list[str]) -> None:
    given = {"RANKLAUNCH_HOSTS": "n0,n1", "RANKLAUNCH_PS_HOSTS": "n2", "RANKLAUNCH_TASK": "worker", "RANKLAUNCH_NODE": "0"}
    problems = "\n".join(refused({**given, **env}))
    for word in words:
        assert word in problems


def test_one_list_with_other_ports_is_no_duplicate() -> None:
    """Containers that share their host's network."""
    plan = helpers.plan(modelarts(TF_PS_HOSTS="[h0:1,h1:1]", TF_WORKER_HOSTS="[h0:2,h1:2]"))
    assert [node.port for node in plan.job.nodes] == [2, 2, 1, 1]


# All containers, and large jobs


def all_nodes(request: Request) -> list[Plan]:
    first = planning.make_plan(request)
    return [planning.make_plan(planning.for_node(request, node.task_index, node.task)) for node in first.job.nodes]


@pytest.mark.parametrize(("task", "index"), [("worker", 1), ("ps", 0)])
def test_every_container_seen_from_one(task: str, index: int) -> None:
    plans = all_nodes(Request(Program("train.py"), modelarts(task, index), helpers.MemoryFiles(), {}, helpers.CWD))
    assert [plan.job.node_index for plan in plans] == [0, 1, 2, 3]
    expected = [("worker", 0), ("worker", 1), ("ps", 0), ("ps", 1)]
    assert [(plan.job.node.task, plan.job.node.task_index) for plan in plans] == expected
    for plan, (own_task, own_index) in zip(plans, expected):
        own = started(helpers.plan(modelarts(own_task, own_index)))
        assert started(plan).argv == own.argv
        if task == "worker":  # a ps does not know the devices of the workers
            assert started(plan) == own


def test_every_container_agrees() -> None:
    """What the muster compares, with no accelerator on a ps."""
    found = [helpers.plan(modelarts(task, index)).muster for task in ("worker", "ps") for index in (0, 1)]
    assert ["arguments" in muster.facts for muster in found if muster] == [True, True, False, False]
    facts = [helpers.of_all(muster.facts) for muster in found if muster]
    assert len(facts) == 4
    assert all(each == facts[0] for each in facts)
    other = helpers.plan(modelarts(TF_PS_HOSTS=array("ps", 2).replace("6234", "6235"))).muster
    assert other
    assert other.facts["hosts"] != facts[0]["hosts"]


def test_the_command_plan_shows_all() -> None:
    shown = helpers.call("plan", "--all-nodes", "--format=json", "train.py", env=modelarts("ps", 1)).json
    assert [(plan["job"]["node_index"], bool(plan["services"])) for plan in shown] == [(0, False), (1, False), (2, True), (3, True)]
    assert shown[0]["job"]["nodes"][3] == {
        "index": 3, "host": f"{JOB}-ps-1.{JOB}", "slots": 0, "first_rank": 2, "task": "ps", "task_index": 1, "port": 6234,
    }  # fmt: skip
    text = helpers.call("plan", "train.py", env=modelarts("ps", 1)).out
    assert f"this node 3 of 4, {JOB}-ps-1.{JOB}, ps 1, no rank" in text
    assert "services\n  ps 1, log " in text
    one = helpers.call("plan", "--node=1", "--task=ps", "--format=json", "train.py", env=modelarts("worker", 0)).json
    assert one["job"]["node_index"] == 3


def large(count: int, host: str) -> Request:
    lists = {
        f"RANKLAUNCH_{task.upper()}_HOSTS": ",".join(f"{host.format(task[0], i)}:2222" for i in range(count)) for task in ("ps", "worker")
    }
    env = {**lists, "RANKLAUNCH_TASK": "worker", "RANKLAUNCH_NODE": str(count - 1)}
    return Request(Program("train.py"), env, helpers.MemoryFiles(), {}, "/")


def test_a_large_job() -> None:
    """TF_CONFIG does not fit in a variable any more; the arguments tell the same."""
    request = large(5_000, "{}{}")
    plan = planning.make_plan(replace(request, env={**request.env, "TF_CONFIG": config()}))
    assert plan.job.node.name == "worker 4999"
    assert "TF_CONFIG" not in plan.processes[0].env
    assert any("TF_CONFIG would have" in warning for warning in plan.warnings)
    assert plan.processes[0].argv[-2].endswith(",w4999:2222")


def test_a_job_that_is_too_large_for_one_argument() -> None:
    began = time.process_time()
    with pytest.raises(ConfigError, match=r"--worker_hosts would have .* one argument can have 131071"):
        planning.make_plan(large(10_000, "modelarts-job-5d2e7c1a-{}-{}.modelarts-job-5d2e7c1a"))
    assert time.process_time() - began < 5


def test_other_methods_see_containers() -> None:
    plan = helpers.plan(modelarts("ps", 1), method="plain")
    assert (plan.job.node_index, plan.processes[0].rank, plan.job.world_size) == (3, 3, 4)
    assert not plan.warnings
    assert any(
        "method spawn takes parameter servers (ps) for ordinary nodes" in warning
        for warning in helpers.plan(modelarts(), method="spawn").warnings
    )


def test_a_job_of_one_task_is_as_before() -> None:
    request = Request(Program("train.py"), helpers.modelarts(2, 2), helpers.MemoryFiles(), {"method": "spawn"}, "/")
    job = planning.make_plan(replace(request, env={**request.env, "MA_TASK_NAME": "worker"})).job
    assert not job.has_tasks
    assert {(node.task, node.task_index, node.port) for node in job.nodes} == {("", 0, 0)}
