"""The chart and `ranklaunch spec` make the same objects from the same values, and refuse the same ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import helpers
import pytest
from chart_refusals import EVERY, REQUIRED, Bad, bad_id

from ranklaunch.entrypoints.main import COMMANDS
from ranklaunch.read.settings import BY_MPI
from ranklaunch.specs.model import OF_KUBERNETES
from ranklaunch.specs.pod import DERIVED
from testbench import places
from testbench.judges.charts import CASES, RELEASE, RUN, Object, case, every_case, every_helm, helm, load, parse, rendered, rendered_with

pytestmark = [
    pytest.mark.skipif("spec" not in COMMANDS, reason="ranklaunch has no command spec"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

ODD = "a\x7fb\u0085c\u2028<&>\ufeff\x01"  # what YAML reads as something else, or refuses
DATA, ODDLY = {"name": "a", "mountPath": "/a"}, {"mountPath": "/a\x7f", "readOnly": True}
# What the case's values are changed by. Both must still say the same.
VARIATIONS: list[tuple[str, Object]] = [
    ("volcano-torchrun-gpu", {"nodes": 1, "restart": {"maxRestarts": 0, "onEviction": "fail"}}),
    ("volcano-torchrun-gpu", {"restart": {"onEviction": "fail", "noRetryExitCodes": []}}),
    ("volcano-torchrun-gpu", {"scheduling": {"minAvailable": 1, "schedulerName": "other"}}),
    ("volcano-torchrun-gpu", {"restart": {"maxRestarts": 0, "onEviction": "fail"}, "lifecycle": {"deadlineSeconds": 10_000_000}}),
    ("volcano-ranktable-npu", {"rankTable": {"mountPath": "/tables", "label": "ascend-910"}}),
    ("volcano-ranktable-npu", {"rankTable": {"source": "file", "mountPath": "/data/table.json"}}),
    ("volcano-tensorflow-cpu", {"network": {"rdma": {"resource": "rdma/ib"}}, "device": {"extra": {"vendor.example/nic": "1"}}}),
    ("jobset-torchrun-gpu", {"restart": {"maxRestarts": 0, "onEviction": "fail"}, "nodes": 1}),
    ("jobset-torchrun-gpu", {"scheduling": {"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}}}),
    ("jobset-torchrun-gpu", {"scheduling": {"affinity": {"podAffinity": None}, "topology": "zone"}}),
    ("jobset-torchrun-gpu", {"scheduling": {"affinity": {"podAffinity": {REQUIRED: None}}, "topology": "zone"}, "nodes": 2.0}),
    ("job-torchrun-gpu", {"nodes": 12, "shm": {"enabled": False}, "network": {"hostNetwork": True}}),
    ("job-torchrun-gpu", {"scheduling": {"kueueQueue": "research"}, "restart": {"noRetryExitCodes": [255, 9, 10]}}),
    ("job-torchrun-gpu", {"env": {"RANKLAUNCH_GRACE_S": "5", "A.B-C": "$(X)", "D": "$x", "E": "$$", "F": "~", "G": ""}}),
    ("job-torchrun-gpu", {"args": ["", " ", "a\tb", "\u2028\u0085", "'", "a: b", "- c", "#", "1_000", "0x1f", "null", "!!str"]}),
    ("job-torchrun-gpu", {"args": [ODD], "env": {"A": ODD}, "annotations": {"a": ODD, "b": "x"}, "labels": {"2": "0"}}),
    ("job-torchrun-gpu", {"envFrom": [{"configMapRef": {"name": ODD}}], "scheduling": {"tolerations": [{"key": ODD}, {"a": [1000000]}]}}),
    ("jobset-torchrun-gpu", {"scheduling": {"affinity": {"nodeAffinity": {"a": ODD}}, "topology": "zone"}}),
    ("job-torchrun-gpu", {"volumes": [{"name": "a", "hostPath": {"path": ODD}}, {"name": "b"}], "volumeMounts": [DATA, {**DATA, **ODDLY}]}),
    ("job-torchrun-gpu", {"args": ["\\u0000", "\\\\u0000"]}),
    ("job-torchrun-gpu", {"mode": "deepspeed", "network": {"hostNetwork": True}}),
    ("jobset-torchrun-gpu", {"mode": "tensorflow", "network": {"hostNetwork": True}, "nodes": 3}),
    ("jobset-torchrun-gpu", {"mode": "auto", "network": {"hostNetwork": True}}),
    ("jobset-torchrun-gpu", {"restart": {"noRetryExitCodes": [143, 9]}}),
    ("trainjob-torchrun-gpu", {"restart": {"noRetryExitCodes": [143]}}),
    ("volcano-torchrun-gpu", {"restart": {"noRetryExitCodes": [143], "onEviction": "fail"}}),
    ("trainjob-torchrun-gpu", {"network": {"hostNetwork": True}}),
    ("job-plain-cpu", {"resources": {"cpu": "1"}, "name": "other"}),
    ("job-plain-cpu", {"name": "null"}),
    ("jobset-torchrun-gpu", {"name": "yes", "network": {"hostNetwork": True}, "scheduling": {"topology": "zone"}}),
    ("trainjob-torchrun-gpu", {"name": "on"}),
    ("acjob-ranktable-npu", {"name": "true"}),
    ("job-plain-cpu", {"labels": {"a": "1", "b": ""}, "annotations": {"c": "true\n"}}),
    ("trainjob-torchrun-gpu", {"scheduling": {"queue": "research"}, "lifecycle": {"deadlineSeconds": 60}}),
    ("trainjob-auto-gpu", {"env": {"RANKLAUNCH_GRACE_S": "900"}}),
    ("trainjob-auto-gpu", {"mode": "spawn", "scheduling": {"kueueQueue": "research"}}),
    ("mpijob-mpi-gpu", {"nodes": 1, "scheduling": {"queue": "research", "priorityClass": "high", "kueueQueue": "a"}}),
    ("mpijob-mpi-gpu", {"nodes": 1, "mpi": {"launcherAsWorker": True}, "network": {"hostNetwork": True}}),
    ("mpijob-mpi-gpu", {"device": {"kind": "cpu"}, "devicesPerNode": 0, "mode": "horovod"}),
    ("acjob-msrun-npu", {"nodes": 1, "restart": {"onEviction": "restart"}, "lifecycle": {"ttlSeconds": 0, "deadlineSeconds": 60}}),
    ("acjob-ranktable-npu", {"rankTable": {"configMapName": "rings-config-demo"}, "scheduling": {"minAvailable": 1}}),
    ("job-plain-cpu", {"labels": {"framework": "jax"}}),
    ("acjob-msrun-npu", {"network": {"masterPort": 3333, "musterPort": 4444}}),
    ("acjob-msrun-npu", {"rankTable": {"source": "none", "label": ""}}),
]


def by_name(objects: list[Object]) -> dict[str, Object]:
    return {f"{each['kind']} {each['metadata']['name']}": each for each in objects}


def of_the_run(objects: list[Object]) -> list[Object]:
    """Without the pod of `helm test`."""
    return [each for each in objects if "helm.sh/hook" not in each["metadata"].get("annotations", {})]


def spec(folder: Path, values: Object) -> helpers.Result:
    """Its name is the release's, unless the values say another, as in the chart."""
    path = folder / "values.json"
    path.write_text(json.dumps(values), encoding="utf-8")
    named = [] if values.get("name") else ["--name", RELEASE]
    return helpers.call("spec", values["engine"], *named, "--values", str(path))


def merged(values: Any, changes: Any) -> Any:
    """As Helm merges files: maps by their keys, all else whole."""
    if not (isinstance(values, dict) and isinstance(changes, dict)):
        return changes
    return {**values, **{name: merged(values.get(name), change) for name, change in changes.items()}}


@every_case
def test_objects_are_the_same(values: Path, tmp_path: Path) -> None:
    found = spec(tmp_path, load(values))
    assert found.code == 0, found.err
    assert by_name(of_the_run(parse(rendered("4", values)))) == by_name(parse(found.out))


@pytest.mark.parametrize(("name", "changes"), VARIATIONS, ids=[f"{name} {changes}"[:100] for name, changes in VARIATIONS])
def test_objects_stay_the_same(name: str, changes: Object, tmp_path: Path) -> None:
    done = rendered_with("4", tmp_path, case(name), changes)
    assert done.returncode == 0, done.stderr
    found = spec(tmp_path, merged(load(case(name)), changes))
    assert found.code == 0, found.err
    assert by_name(of_the_run(parse(done.stdout))) == by_name(parse(found.out))


# The chart's alone: words and places that `ranklaunch spec` has too, or has no use for.
OWN = ({"engine": "slurm"}, {"slurm": {"partition": "a"}}, {"namespace": "other"})


@pytest.mark.parametrize("bad", [bad for bad in EVERY if bad.changes not in OWN], ids=bad_id)
def test_both_refuse(bad: Bad, tmp_path: Path) -> None:
    """That the chart does, test_refusals.py shows."""
    found = spec(tmp_path, merged(load(case(bad.case)), bad.changes))
    assert found.code != 0, found.out
    assert bad.name.rpartition(".")[2] in found.err


@pytest.mark.parametrize("mode", BY_MPI)
def test_both_say_why_a_job_has_no_mpi(mode: str, tmp_path: Path) -> None:
    changes, why = {"mode": mode}, "expected a method without SSH for engine job; use jobset, volcano or mpijob"
    assert f"mode: {mode}: {why}" in rendered_with("4", tmp_path, case("job-torchrun-gpu"), changes).stderr
    assert f"mode={mode}: {why}" in spec(tmp_path, merged(load(case("job-torchrun-gpu")), changes)).err


@pytest.mark.parametrize("engine", OF_KUBERNETES)
def test_variables_that_follow_from_values_are_refused_by_both(engine: str, tmp_path: Path) -> None:
    """Also where none is made: a method in env would pass by the rules for that of the values."""
    base = next(path for path in CASES if load(path)["engine"] == engine)
    changes = {"env": dict.fromkeys(DERIVED, "1")}
    told = [rendered_with("4", tmp_path, base, changes).stderr, spec(tmp_path, merged(load(base), changes)).err]
    assert [[name for name in DERIVED if f"env.{name}:" in text] for text in told] == [list(DERIVED)] * 2


def test_values_are_made_from_the_same_table() -> None:
    made = places.module("tools/chart_values.py")
    assert [str(path.relative_to(RUN)) for path, text in made.made().items() if path.read_text(encoding="utf-8") != text] == []


@every_helm
def test_defaults_are_told(major: str) -> None:
    """A release without values is refused by what is missing."""
    done = helm(major, "template", RELEASE, RUN)
    assert done.returncode
    assert "repository" in done.stderr
