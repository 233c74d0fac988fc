"""charts/ranklaunch-runtimes with Helm 3 and 4."""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path

import pytest
from helpers import ROOT

from testbench import engine_pods
from testbench.judges import linter
from testbench.judges.charts import HELMS, RUNTIME_CASES, RUNTIMES, Object, case_id, every_helm, helm, load, parse, rendered
from testbench.judges.schemas import broken_rules, folder, misfits_of_core, misfits_of_custom, pod_templates

every_case = pytest.mark.parametrize("values", RUNTIME_CASES, ids=case_id)
DATA = {"name": "data", "emptyDir": {}}
BAD: list[tuple[str, Object]] = [
    ("replicas", {"replicas": 2}),
    ("namePrefix", {"namePrefix": "Ranklaunch"}),
    ("namePrefix", {"namePrefix": ""}),
    ("resourceName", {"gpu": {"resourceName": ""}}),
    ("enabled", {"gpu": {"enabled": "yes"}}),
    ("resourceName", {"npu": {"resourceName": "npu"}}),
    ("devicesPerNode", {"npu": {"devicesPerNode": 0}}),
    ("jax", {"runtimes": {"jax": True}}),
    ("env", {"env": {"A": 1}}),
    ("sizeLimit", {"shm": {"sizeLimit": "much"}}),
    ("maxRestarts", {"restart": {"onEviction": "restart"}}),
    ("noRetryExitCodes", {"restart": {"noRetryExitCodes": [0]}}),
    ("gracePeriodSeconds", {"lifecycle": {"gracePeriodSeconds": 1}}),
    ("capabilities", {"security": {"capabilities": ["all"]}}),
    ("repository", {"image": {"repository": "-x"}}),
    ("repository", {"image": {"repository": "a b"}}),
    ("repository", {"image": {"repository": "a/b:1.4", "tag": "1"}}),
    ("repository", {"image": {"repository": "https://a.b/c"}}),
    ("PET_NNODES", {"env": {"PET_NNODES": "2"}}),
    ("RANKLAUNCH_RESTARTS", {"env": {"RANKLAUNCH_RESTARTS": "2"}}),
    ("RANKLAUNCH_JOB_UID", {"env": {"RANKLAUNCH_JOB_UID": "2"}}),
    ("RANKLAUNCH_METHOD", {"env": {"RANKLAUNCH_METHOD": "spawn"}}),
    ("RANKLAUNCH_NODES", {"env": {"RANKLAUNCH_NODES": "2"}}),
    ("RANKLAUNCH_GRACE_S", {"env": {"RANKLAUNCH_GRACE_S": "60"}}),
    ("RANKLAUNCH_GRACE_S", {"env": {"RANKLAUNCH_GRACE_S": ""}}),
    ("LONG", {"env": {"LONG": "x" * 131072}}),
    ("volumes", {"volumes": [{"name": "shm", "emptyDir": {}}]}),
    ("volumes", {"volumes": [{"name": "a", "emptyDir": {}}, {"name": "a", "emptyDir": {}}]}),
    ("volumes", {"volumes": [{"emptyDir": {}}]}),
    ("volumes", {"volumes": [{"name": 1}]}),
    ("volumes", {"volumes": [{"name": "a"}]}),
    ("emptydir", {"volumes": [{"name": "a", "emptydir": {}}]}),
    *(("repository", {"image": {"repository": name}}) for name in ("-x", "a b", "a@b", "a\x85b", "a\u00a0b", "a\u200bb", "a\x1c")),
    ("pullSecrets", {"image": {"pullSecrets": ["a", "a"]}}),
    ("pullSecrets", {"image": {"pullSecrets": ["A_b"]}}),
    ("tolerationSeconds", {"npu": {"tolerations": [{"key": "a", "tolerationSeconds": 1}]}}),
    ("effect", {"gpu": {"tolerations": [{"key": "a", "effect": "NoRun"}]}}),
    ("PET_NNODES", {"extraEnv": [{"name": "PET_NNODES", "value": "2"}]}),
    ("extraEnv", {"extraEnv": [{"name": "A", "value": "2"}], "env": {"A": "1"}}),
    ("image", {"initContainers": [{"name": "a"}]}),
    ("extraContainers", {"extraContainers": [{"name": "node", "image": "i"}]}),
    ("volumeMounts", {"extraContainers": [{"name": "a", "image": "i", "volumeMounts": [{"name": "x", "mountPath": "/x"}]}]}),
    ("tolerations", {"podTemplate": {"tolerations": []}}),
    ("runAsUser", {"podTemplate": {"securityContext": {"runAsUser": 0}}}),
    ("nodeSelector", {"scheduling": {"nodeSelector": {}}}),
    ("gpu.devicesPerNode", {"devicesPerNode": 8}),
    ("volumeMounts", {"volumeMounts": [{"name": "nope", "mountPath": "/x"}]}),
    ("volumeMounts", {"volumeMounts": [{"name": "shm", "mountPath": "/x"}]}),
    ("volumeMounts", {"volumes": [DATA], "volumeMounts": [{"name": "data", "mountPath": "/dev/shm"}]}),
    ("volumeMounts", {"volumes": [DATA], "volumeMounts": [{"name": "data", "mountPath": "x"}]}),
    ("volumeMounts", {"volumes": [DATA], "volumeMounts": [{"name": "data", "mountPath": "/x"}] * 2}),
    ("env", {"env": {"A": "\0"}}),
    ("labels", {"labels": {"a b": "x"}}),
    ("labels", {"labels": {"team": "c d"}}),
    ("labels", {"labels": {"app.kubernetes.io/name": "x"}}),
    ("nodeSelector", {"npu": {"nodeSelector": {"a b": "x"}}}),
    ("nodeSelector", {"gpu": {"nodeSelector": {"zone": "a b"}}}),
    ("npu", {"gpu": {"enabled": False}, "npu": {"enabled": False}}),
    ("runtimes", {"runtimes": {"plain": False, "torch": False, "mpi": False}}),
]


@every_helm
@every_case
def test_lint(major: str, values: Path) -> None:
    done = helm(major, "lint", "--strict", RUNTIMES, "--values", values)
    assert done.returncode == 0, done.stdout + done.stderr


@every_helm
@every_case
def test_two_renderings_are_the_same(major: str, values: Path) -> None:
    again = helm(major, "template", "demo", RUNTIMES, "--namespace", "team", "--values", values)
    assert again.stdout == rendered(major, values, RUNTIMES)


@every_case
def test_both_helms_render_the_same_objects(values: Path) -> None:
    texts = [rendered(major, values, RUNTIMES) for major in HELMS]
    assert parse(texts[0]) == parse(texts[1])


@every_case
def test_runtimes_are_those_asked_for(values: Path) -> None:
    found = load(values)
    devices = [device for device in ("gpu", "npu") if found.get(device, {}).get("enabled", True)]
    policies = [policy for policy in ("plain", "torch", "mpi") if found.get("runtimes", {}).get(policy, True)]
    wanted = {f"ranklaunch-{device}{'' if policy == 'plain' else f'-{policy}'}" for device in devices for policy in policies}
    objects = parse(rendered("4", values, RUNTIMES))
    assert {each["kind"] for each in objects} == {"ClusterTrainingRuntime"}
    assert {each["metadata"]["name"] for each in objects} == wanted


@every_case
def test_trainer_finds_the_container(values: Path) -> None:
    """Its webhook asks for these; no schema does."""
    for runtime in parse(rendered("4", values, RUNTIMES)):
        (job,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
        assert job["replicas"] == 1
        assert job["template"]["metadata"]["labels"] == {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
        (pod,) = pod_templates(runtime)
        (container,) = pod["spec"]["containers"]
        assert container["name"] == "node"
        assert pod["spec"]["restartPolicy"] == "Never"
        assert container["resources"]["requests"] == container["resources"]["limits"]
        fields = [each["valueFrom"]["fieldRef"]["fieldPath"] for each in container["env"] if "fieldRef" in each.get("valueFrom", {})]
        assert fields == [engine_pods.WRITTEN["trainjob"], engine_pods.UIDS["trainjob"]]
        names = [variable["name"] for variable in container["env"]]
        assert len(set(names)) == len(names)


def test_each_policy_has_its_method() -> None:
    (values,) = [path for path in RUNTIME_CASES if case_id(path) == "default"]
    runtimes = {each["metadata"]["name"]: each for each in parse(rendered("4", values, RUNTIMES))}
    for device in ("gpu", "npu"):
        env = {name: environment(runtime) for name, runtime in runtimes.items()}
        assert "RANKLAUNCH_METHOD" not in env[f"ranklaunch-{device}"]
        assert env[f"ranklaunch-{device}-torch"]["RANKLAUNCH_METHOD"] == "torchrun"
        assert env[f"ranklaunch-{device}-mpi"]["RANKLAUNCH_METHOD"] == "mpirun"
        assert runtimes[f"ranklaunch-{device}-torch"]["spec"]["mlPolicy"] == {"numNodes": 1, "torch": {}}
        assert runtimes[f"ranklaunch-{device}"]["spec"]["mlPolicy"] == {"numNodes": 1}
        assert env[f"ranklaunch-{device}"]["RANKLAUNCH_ACCELERATOR"] == device


def environment(runtime: Object) -> dict[str, str]:
    (pod,) = pod_templates(runtime)
    return {variable["name"]: variable.get("value", "") for variable in pod["spec"]["containers"][0]["env"]}


@every_case
def test_containers_beside_the_program_are_sidecars(values: Path) -> None:
    found = load(values)
    wanted = [(each["name"], None) for each in found.get("initContainers", [])]
    wanted += [(each["name"], "Always") for each in found.get("extraContainers", [])]
    for runtime in parse(rendered("4", values, RUNTIMES)):
        (pod,) = pod_templates(runtime)
        assert [(each["name"], each.get("restartPolicy")) for each in pod["spec"].get("initContainers", [])] == wanted


@every_case
def test_volcano_places_its_gang(values: Path) -> None:
    """Trainer makes the PodGroup alone: another scheduler would not look at it."""
    queue = load(values).get("scheduling", {}).get("volcanoQueue")
    for runtime in parse(rendered("4", values, RUNTIMES)):
        (pod,) = pod_templates(runtime)
        assert pod["spec"].get("schedulerName") == ("volcano" if queue else None)
        assert ("podGroupPolicy" in runtime["spec"]) == bool(queue)


@every_case
def test_pods_fit_kubernetes(values: Path) -> None:
    assert [misfit for each in parse(rendered("4", values, RUNTIMES)) for misfit in misfits_of_core(each)] == []


if folder() or not os.environ.get("CI"):  # they are no part of the repository
    needs_definitions = pytest.mark.skipif(
        not folder(), reason="there are no CustomResourceDefinitions beside the repository, and SPEC_CRDS names no folder with them"
    )

    @every_case
    @needs_definitions
    def test_runtimes_fit_their_definition(values: Path) -> None:
        runtimes = parse(rendered("4", values, RUNTIMES))
        assert [misfit for each in runtimes for misfit in misfits_of_custom(each)] == []
        assert [rule for each in runtimes for rule in broken_rules(each)] == []

    @needs_definitions
    def test_the_definition_s_rules_are_judged() -> None:
        runtime = parse(rendered("4", RUNTIME_CASES[0], RUNTIMES))[0]
        runtime["spec"]["mlPolicy"].update(torch={}, mpi={})
        assert broken_rules(runtime)


@every_case
def test_nothing_is_wrong_that_only_controllers_see(values: Path) -> None:
    runtimes = parse(rendered("4", values, RUNTIMES))
    assert linter.lint(runtimes) == []
    (pod,) = pod_templates(runtimes[0])
    pod["spec"]["containers"][0]["env"] *= 2
    assert linter.lint(runtimes) == ["JobSet job node: a variable twice"]


HOSTILE = {"A": "$(X) $$ 'a\"\n", "yes": "null", "null": "~", "B": "\u0085\u2028: #", "C": ""}


@every_helm
def test_environment_is_exactly_what_was_given(major: str, tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    odd = {"name": "odd", "hostPath": {"path": "/a\x7fb\u0085" if major == "4" else "/a"}}  # Helm 3 itself refuses what has a DEL
    tolerations = [{"key": odd["hostPath"]["path"], "operator": "Exists"}]
    given = {"env": HOSTILE, "image": {"repository": "null"}, "volumes": [odd], "gpu": {"tolerations": tolerations}}
    values.write_text(json.dumps(given), encoding="utf-8")
    for runtime in parse(rendered(major, values, RUNTIMES)):
        (pod,) = pod_templates(runtime)
        assert pod["spec"]["containers"][0]["image"] == "null"
        assert [volume for volume in pod["spec"]["volumes"] if volume["name"] != "shm"] == [odd]
        assert pod["spec"].get("tolerations", tolerations) == tolerations
        env = environment(runtime)
        assert {name: env[name] for name in HOSTILE} == {**HOSTILE, "A": "$$(X) $$$$ 'a\"\n"}


@every_helm
@pytest.mark.parametrize("text", ["\n", "a\n\n", "a\u3000"])
def test_texts_keep_their_ends(major: str, text: str, tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    sysctls = [{"name": "a", "value": text}]
    values.write_text(json.dumps({"podTemplate": {"securityContext": {"sysctls": sysctls}}}), encoding="utf-8")
    pods = [pod for runtime in parse(rendered(major, values, RUNTIMES)) for pod in pod_templates(runtime)]
    assert [pod["spec"]["securityContext"]["sysctls"] for pod in pods] == [sysctls] * 6


@every_helm
@pytest.mark.parametrize(("name", "changes"), BAD, ids=[f"{name} {changes}"[:100] for name, changes in BAD])
def test_refused_by_name(major: str, name: str, changes: Object, tmp_path: Path) -> None:
    changed = tmp_path / "changes.yaml"
    changed.write_text(json.dumps(changes), encoding="utf-8")
    done = helm(major, "template", "demo", RUNTIMES, "--values", changed)
    assert done.returncode
    assert re.search(rf"\b{name}\b", done.stderr), done.stderr


@every_helm
def test_package(major: str, tmp_path: Path) -> None:
    done = helm(major, "package", RUNTIMES, "--destination", tmp_path)
    assert done.returncode == 0, done.stderr
    (archive,) = tmp_path.glob("ranklaunch-runtimes-*.tgz")
    again = helm(major, "template", "demo", archive, "--namespace", "team", "--values", RUNTIME_CASES[0])
    assert parse(again.stdout) == parse(rendered(major, RUNTIME_CASES[0], RUNTIMES))


@every_case
def test_notes_name_a_runtime_that_is_made(values: Path) -> None:
    done = helm("4", "install", "demo", RUNTIMES, "--values", values, "--dry-run=client")
    assert done.returncode == 0, done.stderr
    (command,) = re.findall(r"^  helm install RUN (charts/ranklaunch --set .*) \.\.\.$", done.stdout, re.MULTILINE)
    chart, *options = shlex.split(command)
    (named,) = [word.partition("=")[2] for word in options if word.startswith("trainer.runtime=")]
    runtimes = {each["metadata"]["name"]: each for each in parse(rendered("4", values, RUNTIMES))}
    run = helm("4", "template", "run", ROOT / chart, *options, "--set", "image.repository=train", "--set", "script=train.py")
    assert run.returncode == 0, run.stderr
    (device,) = re.findall(r"name: RANKLAUNCH_ACCELERATOR\n *value: \"(.*)\"", run.stdout)
    assert environment(runtimes[named])["RANKLAUNCH_ACCELERATOR"] == device


@pytest.mark.parametrize(
    ("more", "logs"),
    [
        ((), ["/tmp/ranklaunch-logs"]),
        (("--set", "env.RANKLAUNCH_LOG_DIR=/data"), ["/data"]),
        (("--set-json", 'extraEnv=[{"name": "RANKLAUNCH_LOG_DIR", "value": "/data"}]'), ["/data"]),
    ],
)
def test_logs_of_a_root_that_cannot_be_written_go_to_a_volume(more: tuple[str, ...], logs: list[str]) -> None:
    text = rendered("4", RUNTIME_CASES[0], RUNTIMES, "--set", "security.readOnlyRootFilesystem=true", *more)
    for pod in pod_templates(parse(text)):
        (container,) = pod["spec"]["containers"]
        assert [each["value"] for each in container["env"] if each["name"] == "RANKLAUNCH_LOG_DIR"] == logs
        assert "/tmp" in [each["mountPath"] for each in container["volumeMounts"]]
