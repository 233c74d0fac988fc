"""What users give as Kubernetes has it, and keys that there are not."""

from __future__ import annotations

from typing import Any

import helpers
import pytest

from ranklaunch.specs import familiar, keys
from ranklaunch.specs.kubernetes import check
from ranklaunch.specs.model import JobSpec
from testbench import places

WRONG: list[tuple[str, Any, list[str]]] = [
    ("EnvFromSource[]", [{"secretRef": {"name": "a"}}, {"prefix": "A_", "configMapRef": {"name": "a.b"}}], []),
    ("EnvFromSource[]", [{"secretReff": {"name": "a"}}], ["x[0].secretReff: unknown key, did you mean 'secretRef'?"]),
    ("EnvFromSource[]", [{}], ["x[0]: expected one of them, configMapRef, secretRef, found none"]),
    ("EnvFromSource", {"secretRef": {}}, ["x.secretRef.name: required"]),
    ("EnvFromSource", {"secretRef": {"name": None}}, ["x.secretRef.name: required"]),
    ("Volume", {"name": "a", "emptyDir": {"sizeLimit": "1Gi"}}, []),
    ("EmptyDirVolumeSource", {"sizeLimit": "1 Gi"}, ["x.sizeLimit: expected a quantity such as 4 or 16Gi, found '1 Gi'"]),
    ("Volume", {"name": "a", "csi": None}, [f"x: expected one source, {check.COMMON['Volume']}, found none"]),
    ("Container", {"name": "a", "image": "i", "resources": {"limits": {"cpu": 1, "memory": "1Gi"}}}, []),
    ("ContainerPort[]", [{"containerPort": "80"}], ["x[0].containerPort: expected an integer, found '80'"]),
    ("Container", {"name": "a", "image": "i", "livenessProbe": {"tcpSocket": {"port": "http"}}}, []),
    ("Container", ["a"], ["x=\"['a']\": expected an object with one of " + ", ".join(check.types()["Container"])]),
    ("Toleration[]", {"key": "a"}, ["x=\"{'key': 'a'}\": expected a list"]),
    ("Toleration", {"effect": "NoRun"}, ["x.effect='NoRun': expected one of NoSchedule, PreferNoSchedule, NoExecute"]),
    ("PodTemplate", {"tolerations": []}, ["x.tolerations: made from scheduling.tolerations; set that"]),
    ("Sysctl", {"name": "a", "value": 1}, [f"x.value: expected {check.SCALARS['string'][1]}, found '1'"]),
    ("LabelSelector", {"matchLabels": {"a": True}}, [f"x.matchLabels.a: expected {check.SCALARS['string'][1]}, found 'True'"]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value", "found"), WRONG, ids=[f"{kind} {value}"[:60] for kind, value, _ in WRONG])
def test_what_is_wrong_has_its_place(kind: str, value: Any, found: list[str]) -> None:
    assert list(check.problems("x", kind, value)) == found


def test_objects_of_kubernetes_have_a_type() -> None:
    for path, key in keys.every(JobSpec):
        if key.kind in (keys.OBJECT, keys.OBJECTS) and not path.startswith("modelarts."):
            assert key.of in check.types(), f"{path}: say in the model what Kubernetes calls it, and add it to ROOTS of tools/pod_fields.py"


@pytest.mark.specs
def test_types_are_those_of_kubernetes() -> None:
    tool = places.module("tools/pod_fields.py")
    assert tool.PAGE.read_text(encoding="utf-8") == tool.made(), "run tools/pod_fields.py"


def test_each_pattern_is_said_in_words() -> None:
    silent = {path: key.pattern for path, key in keys.every(JobSpec) if key.pattern and key.pattern not in keys.FORMS}
    assert silent == {}, "say in FORMS of src/ranklaunch/specs/keys.py what these ask for"


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("devicePerNode", ", did you mean 'devicesPerNode'?"),
        ("numProcPerNode", "; here it is devicesPerNode"),
        ("gpu_per_node", "; here it is devicesPerNode"),
        ("scheduling.toleration", ", did you mean 'scheduling.tolerations'?"),
        ("worker.replicas", "; here it is nodes"),
        ("run-as-user", "; here it is security.runAsUser"),
        ("partition", "; here it is slurm.partition"),
        ("device.number", ""),
    ],
)
def test_what_is_meant_is_told(path: str, told: str) -> None:
    assert familiar.hint(path, keys.paths(JobSpec)) == told


def test_what_is_familiar_is_none_of_ours_and_leads_to_ours() -> None:
    paths = set(keys.paths(JobSpec))
    ours = {familiar.plain(path) for path in paths if "." not in path}
    assert ours & familiar.FAMILIAR.keys() <= {"serviceaccountname"}
    keys_of = {advice: advice.split(",")[0].split(" ")[0] for advice in familiar.FAMILIAR.values() if not advice.startswith("left out: ")}
    assert [advice for advice, key in keys_of.items() if key not in paths] == []


def test_other_platforms_have_no_pods() -> None:
    for kind, options in (("slurm", ()), ("modelarts", ("--flavor", "f"))):
        words = ("--name", "a", "--image", "i", *options, "--set", 'initContainers=[{"name": "a", "image": "i"}]', "--", "x")
        found = helpers.call("spec", kind, *words)
        assert (found.code, found.out) == (78, "")
        assert f"initContainers: {kind} has no place for it" in found.err
