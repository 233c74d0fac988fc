"""The chart and `ranklaunch spec` make the same objects from the same values, and refuse the same ones."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import helpers
import pytest
from chart_refusals import BY_ENGINE, EVERY, REQUIRED, Bad, bad_id

from ranklaunch.entrypoints.main import COMMANDS
from ranklaunch.env.settings import BY_MPI
from ranklaunch.specs import documents, keys
from ranklaunch.specs.model import OF_KUBERNETES, JobSpec
from ranklaunch.specs.pod import DERIVED
from testbench import places
from testbench.judges.charts import (
    CASES,
    CHARTS,
    RELEASE,
    RUN,
    Object,
    case,
    every_case,
    every_helm,
    helm,
    load,
    parse,
    rendered,
    rendered_with,
)

pytestmark = [
    pytest.mark.skipif("spec" not in COMMANDS, reason="ranklaunch has no command spec"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

ODD = "a\x7fb\u0085c\u2028<&>\ufeff\x01"  # what YAML reads as something else, or refuses
ODD_TOLERATION = {"key": ODD, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1000000}
ODD_TERM = {"matchExpressions": [{"key": ODD, "operator": "Exists"}]}
SIDECAR = {"name": "side", "image": "i", "env": [{"name": "A", "value": ODD}], "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}]}
TMP, READ_ONLY = {"name": "tmp", "emptyDir": {"sizeLimit": 1000000}}, {"readOnlyRootFilesystem": True, "fsGroup": -1}
LOCAL = {"type": "Localhost", "localhostProfile": "a.json"}
WITHOUT_DIGEST = ("ConfigMap", "NetworkPolicy", "PodMonitor", "PrometheusRule")
RUNNING = {
    "restart": {"inPlace": 2},
    "hang": {"action": "restart", "seconds": 60},
    "save": {"signal": "USR1", "file": "/data/save"},
    "metrics": {"enabled": True, "podMonitor": True, "rules": True},
    "networkPolicy": {"enabled": True, "metricsNamespaces": ["monitoring", "ops"]},
    "security": READ_ONLY,
}
DATA, ODDLY = {"name": "a", "mountPath": "/a"}, {"mountPath": "/a\x7f", "readOnly": True}


def at_the_end(text: str) -> Object:
    """Of each block that is made from what the user gives."""
    return {
        "annotations": {"z": text},
        "scheduling": {"tolerations": [{"key": "k", "value": text}]},
        "envFrom": [{"configMapRef": {"name": "a"}, "prefix": text}],
        "volumes": [{"name": "data", "csi": {"driver": "d", "volumeAttributes": {"z": text}}}],
        "podTemplate": {"securityContext": {"sysctls": [{"name": "a", "value": text}]}},
    }


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
    ("job-torchrun-gpu", {"envFrom": [{"configMapRef": {"name": "a"}, "prefix": ODD}], "scheduling": {"tolerations": [ODD_TOLERATION]}}),
    (
        "jobset-torchrun-gpu",
        {"scheduling": {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [ODD_TERM]}}}, "topology": "zone"}},
    ),
    ("job-torchrun-gpu", {"volumes": [{"name": "a", "hostPath": {"path": ODD}}], "volumeMounts": [DATA, {**DATA, **ODDLY}]}),
    ("job-torchrun-gpu", {"args": ["a\u2029b\nx"], "annotations": {"a": "b\u2028\nc"}}),
    *(("job-torchrun-gpu", at_the_end(text)) for text in ("\n", "a\n\n", "\na\n\n\n", "a\n \n", "\u00a0", "a\u3000")),
    ("job-torchrun-gpu", {"volumes": [{"name": "data", "csi": {"driver": "d", "volumeAttributes": {"<<": "x", "=": "y"}}}]}),
    ("job-torchrun-gpu", {"args": ["\\u0000", "\\\\u0000"]}),
    ("job-torchrun-gpu", {"mode": "deepspeed", "network": {"hostNetwork": True}}),
    ("jobset-torchrun-gpu", {"mode": "tensorflow", "network": {"hostNetwork": True}, "nodes": 3}),
    ("jobset-torchrun-gpu", {"mode": "auto", "network": {"hostNetwork": True}}),
    *(("jobset-jax-gpu", {"mode": mode, "network": {"hostNetwork": True}}) for mode in ("jax", "ray")),
    *((f"{name}-gpu", {"mode": mode}) for name in ("job-torchrun", "trainjob-torchrun") for mode in ("jax", "ray")),
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
    ("acjob-msrun-npu", {"initContainers": [{"name": "a", "image": "i"}], "podTemplate": {"runtimeClassName": "ascend"}}),
    ("mpijob-mpi-gpu", {"extraEnv": [{"name": "A", "value": "$(B)"}], "extraContainers": [SIDECAR], "security": {"runAsGroup": -1}}),
    ("trainjob-torchrun-gpu", {"extraContainers": [SIDECAR, {**SIDECAR, "name": "b", "restartPolicy": "Always"}], "security": READ_ONLY}),
    ("trainjob-auto-gpu", {"extraEnv": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}]}),
    ("job-torchrun-gpu", {"volumes": [TMP], "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}], "security": READ_ONLY}),
    ("job-torchrun-gpu", {"podTemplate": {"hostUsers": False, "dnsPolicy": None, "securityContext": {"seccompProfile": LOCAL}}}),
    ("job-torchrun-gpu", {"network": {"hostNetwork": True}, "podTemplate": {"dnsPolicy": "Default", "hostAliases": []}}),
    *((name, {"namespace": "team", **RUNNING}) for name in ("job-torchrun-gpu", "jobset-torchrun-gpu", "volcano-tensorflow-cpu")),
    *((name, {"namespace": "team", **RUNNING}) for name in ("mpijob-mpi-cpu", "acjob-msrun-npu", "trainjob-torchrun-gpu")),
    ("trainjob-auto-gpu", {"metrics": {"enabled": True, "port": 9401}, "networkPolicy": {"enabled": True}, "save": {"file": "/a b"}}),
    ("job-torchrun-gpu", {"networkPolicy": {"enabled": True}, "annotations": {"a": ODD}, "labels": {"release": "prometheus"}}),
    *(
        ("job-torchrun-gpu", {"security": READ_ONLY, **more})
        for more in ({"env": {"RANKLAUNCH_LOG_DIR": "/data"}}, {"env": {"MA_LOG_DIR": "/a"}})
    ),
    ("job-torchrun-gpu", {"security": READ_ONLY, "extraEnv": [{"name": "RANKLAUNCH_LOG_DIR", "value": "/data"}]}),
    ("job-torchrun-gpu", {"security": READ_ONLY, "envFrom": [{"configMapRef": {"name": "a"}}]}),
]


def by_name(objects: list[Object]) -> dict[str, Object]:
    return {f"{each['kind']} {each['metadata']['name']}": each for each in objects}


def of_the_run(objects: list[Object]) -> list[Object]:
    """Without the pod of `helm test`, and without the digest that upgrades look at."""
    found = [each for each in objects if "helm.sh/hook" not in each["metadata"].get("annotations", {})]
    for each in found:
        if each["kind"] not in WITHOUT_DIGEST:
            assert each["metadata"]["annotations"].pop("ranklaunch/values")
            each["metadata"] = {name: value for name, value in each["metadata"].items() if name != "annotations" or value}
    return found


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


WITHOUT_QUOTES = """\
1:30 -1:30 1:30:00.5 190:20:30 1e3 1.5e3 1E+3 1.e3 1e-3 .5 5. -.5e1 +.5 1e 1e+ 0.5. 1_0.5 nan inf
0 -0 00 +1 017 -017 018 0o17 -0o17 0o1_7 0o8 0b101 0B1 0x1F 0X1f -0x1f 0x 1_000 1_ _1 1.2.3
yes No ON off y n Y N True FALSE tRue null Null NULL ~ NuLL = a
2026-11-24 2026-1-1 2026-13-13 2026-11-24T01:02:03Z"""


def test_both_read_text_without_quotes_alike(tmp_path: Path) -> None:
    """Helm's word is that of a chart which writes its values."""
    (tmp_path / "templates").mkdir()
    (tmp_path / "Chart.yaml").write_text("apiVersion: v2\nname: a\nversion: 0.1.0\n", encoding="utf-8")
    (tmp_path / "templates/a.yaml").write_text("found: {{ toJson .Values.a }}", encoding="utf-8")
    values = tmp_path / "given.yaml"
    values.write_text("".join(("a:\n", *(f"- {text}\n" for text in WITHOUT_QUOTES.split()))), encoding="utf-8")
    done = helm("4", "template", RELEASE, tmp_path, "--values", values)
    assert done.returncode == 0, done.stderr
    helms = json.loads(done.stdout.partition("found: ")[2])
    import yaml

    ours = documents.parsed(values.read_text(encoding="utf-8"), lambda: yaml)["a"]
    # One that is true is no 1, while 1000.0 is 1000.
    read, wanted = ([(isinstance(each, bool), each) for each in found] for found in (ours, helms))
    assert dict(zip(WITHOUT_QUOTES.split(), read)) == dict(zip(WITHOUT_QUOTES.split(), wanted))


# The chart's alone: words and places that `ranklaunch spec` has too, or has no use for.
NOT_OF_CHARTS = places.module("tools/chart_values.py").LEFT_OUT
OWN = ({"engine": "slurm"}, {"slurm": {"partition": "a"}}, {"namespace": "other"})


@pytest.mark.parametrize("bad", [bad for bad in EVERY if bad.changes not in OWN], ids=bad_id)
def test_both_refuse(bad: Bad, tmp_path: Path) -> None:
    """That the chart does, test_refusals.py shows."""
    found = spec(tmp_path, merged(load(case(bad.case)), bad.changes))
    assert found.code != 0, found.out
    assert bad.name.rpartition(".")[2] in found.err


@pytest.mark.parametrize("bad", BY_ENGINE, ids=bad_id)
def test_both_say_what_the_engine_cannot(bad: Bad, tmp_path: Path) -> None:
    """In the same words, and neither by a rule of a schema."""
    told = [rendered_with("4", tmp_path, case(bad.case), bad.changes).stderr, spec(tmp_path, merged(load(case(bad.case)), bad.changes)).err]
    whys = [re.findall(rf"{bad.name}[=:] ?[^:]*: (.*)", text) or re.findall(rf"{bad.name}: (.*)", text) for text in told]
    assert whys[0][:1] == whys[1][:1] != []


FAMILIAR: list[tuple[Object, str]] = [
    ({"devicePerNode": 8}, "devicePerNode: unknown key, did you mean 'devicesPerNode'?"),
    ({"restart": {"maxRestart": 3}}, "restart.maxRestart: unknown key, did you mean 'restart.maxRestarts'?"),
    ({"tolerations": []}, "tolerations: unknown key; here it is scheduling.tolerations"),
    ({"priorityClassName": "high"}, "priorityClassName: unknown key; here it is scheduling.priorityClass"),
    (
        {"resources": {"limits": {"nvidia.com/gpu": 8}}},
        "resources.limits: unknown key; here it is devicesPerNode for devices, resources.cpu",
    ),
    ({"nproc_per_node": 8}, "nproc_per_node: unknown key; here it is devicesPerNode"),
    ({"replicas": 2}, "replicas: unknown key; here it is nodes"),
    ({"runtimeClassName": "nvidia"}, "runtimeClassName: unknown key; here it is podTemplate"),
    ({"network": {"hostNetwrk": True}}, "network.hostNetwrk: unknown key, did you mean 'network.hostNetwork'?"),
]


@pytest.mark.parametrize(("changes", "said"), FAMILIAR, ids=[said.partition(":")[0] for _, said in FAMILIAR])
def test_both_know_what_is_meant(changes: Object, said: str, tmp_path: Path) -> None:
    base = case("job-torchrun-gpu")
    for text in (rendered_with("4", tmp_path, base, changes).stderr, spec(tmp_path, merged(load(base), changes)).err):
        assert said in text


def test_neither_shows_a_pattern(tmp_path: Path) -> None:
    """Each value that has one, as a text that fits none."""
    wrong: Object = {}
    for path, key in keys.every(JobSpec):
        if key.pattern and path.partition(".")[0] not in NOT_OF_CHARTS:
            place = wrong
            *groups, name = path.split(".")
            for each in groups:
                place = place.setdefault(each, {})
            place[name] = {" \n": "x"} if key.kind == keys.PAIRS else [" \n"] if key.kind == keys.TEXTS else " \n"
    base = case("job-torchrun-gpu")
    for text in (rendered_with("4", tmp_path, base, wrong).stderr, spec(tmp_path, merged(load(base), wrong)).err):
        for path, key in keys.every(JobSpec):
            if key.pattern and path.partition(".")[0] not in NOT_OF_CHARTS:
                assert re.search(rf"{re.escape(path)}[:=].*expected {re.escape(key.form)}", text), path
        assert not re.search(r"\[a-z|\[A-Z|\^|\(\?", text)


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
    assert [str(path.relative_to(CHARTS)) for path, text in made.made().items() if path.read_text(encoding="utf-8") != text] == []


@every_helm
def test_defaults_are_told(major: str) -> None:
    """A release without values is refused by what is missing."""
    done = helm(major, "template", RELEASE, RUN)
    assert done.returncode
    assert "repository" in done.stderr
