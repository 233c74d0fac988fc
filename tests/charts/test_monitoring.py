"""A run that is watched: its endpoint, its PodMonitor, its alerts before the real promtool, and who may reach its pods."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import helpers
import pytest

from ranklaunch.specs.kubernetes.companions import ALERTS, PODS
from ranklaunch.specs.model import OF_KUBERNETES
from testbench.judges.charts import RELEASE, RUN, Object, case, helm, load, of_kind, parse, rendered, rendered_with
from testbench.judges.schemas import misfits_of_core, misfits_of_custom, pod_templates

WATCHED = case("job-spawn-gpu")
ON = {"metrics": {"enabled": True, "podMonitor": True, "rules": True}, "namespace": "team"}
CASE_OF = {
    "volcano": "volcano-torchrun-gpu", "jobset": "jobset-torchrun-gpu", "job": "job-torchrun-gpu", "trainjob": "trainjob-torchrun-gpu",
    "mpijob": "mpijob-mpi-gpu", "acjob": "acjob-msrun-npu",
}  # fmt: skip
# A pod of each engine, as the engine calls it, and one of another run whose name begins alike.
POD_NAMES = {
    "volcano": "demo-worker-11", "jobset": "demo-worker-0-11-x7k2p", "job": "demo-11-x7k2p", "trainjob": "demo-node-0-11-x7k2p",
    "mpijob": "demo-launcher-x7k2p", "acjob": "demo-master-0",
}  # fmt: skip
SERIES = {
    "RanklaunchHang": 'ranklaunch_hang_suspected{{job_name="{run}", node="1", namespace="{namespace}"}}',
    "RanklaunchSlow": 'ranklaunch_slow{{job_name="{run}", node="0", namespace="{namespace}"}}',
    "RanklaunchRestarts": 'ranklaunch_restarts_total{{job_name="{run}", node="0", namespace="{namespace}"}}',
    "RanklaunchExitCode": 'ranklaunch_exit_code{{job_name="{run}", node="0", namespace="{namespace}"}}',
}


def promtool(*words: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    program = shutil.which("promtool")
    if not program:
        pytest.skip("promtool is not installed: Debian has it in the package prometheus")
    return subprocess.run([program, *map(str, words)], cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def rules_of(engine: str, folder: Path) -> Path:
    done = rendered_with("4", folder, case(CASE_OF[engine]), ON)
    assert done.returncode == 0, done.stderr
    path = folder / "rules.json"
    path.write_text(json.dumps(of_kind(parse(done.stdout), "PrometheusRule")["spec"]), encoding="utf-8")
    return path


def fired(folder: Path, series: dict[str, str], alert: str) -> str:
    """Return what promtool says of an alert that must fire for the run demo in the namespace team, "" if it does."""
    labels = {"severity": next(each.severity for each in ALERTS if each.alert == alert), "job_name": "demo", "namespace": "team"}
    summary = next(each.summary for each in ALERTS if each.alert == alert).replace("NAME", "demo")
    expected = [{"exp_labels": labels, "exp_annotations": {"summary": summary}}]
    return judged(folder, series, alert, expected)


def judged(folder: Path, series: dict[str, str], alert: str, expected: list[Object]) -> str:
    rows = [{"series": name, "values": values} for name, values in series.items()]
    test = {"interval": "1m", "input_series": rows, "alert_rule_test": [{"eval_time": "10m", "alertname": alert, "exp_alerts": expected}]}
    path = folder / "test.json"
    path.write_text(json.dumps({"rule_files": ["rules.json"], "evaluation_interval": "1m", "tests": [test]}), encoding="utf-8")
    done = promtool("test", "rules", path, folder=folder)
    return done.stdout + done.stderr if done.returncode else ""


def test_alerts_are_about_metrics_that_there_are() -> None:
    page = (helpers.ROOT / "docs" / "observability.md").read_text(encoding="utf-8")
    asked = {name for alert in ALERTS for name in re.findall(r"ranklaunch_\w+", alert.expr)}
    assert len(asked) == len(SERIES) == len(ALERTS) - 1  # RanklaunchFailed asks kube-state-metrics
    assert asked <= set(re.findall(r"ranklaunch_\w+", page))


@pytest.mark.parametrize("engine", OF_KUBERNETES)
def test_promtool_takes_the_rules(engine: str, tmp_path: Path) -> None:
    done = promtool("check", "rules", rules_of(engine, tmp_path), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"{len(ALERTS)} rules found" in done.stdout


@pytest.mark.parametrize("alert", SERIES)
@pytest.mark.parametrize(("run", "namespace", "fires"), [("demo", "team", True), ("demo2", "team", False), ("demo", "other", False)])
def test_an_alert_is_about_its_run(alert: str, run: str, namespace: str, fires: bool, tmp_path: Path) -> None:
    rules_of("job", tmp_path)
    series = {SERIES[alert].format(run=run, namespace=namespace): "0 0 0 0 0 1+0x6"}
    assert (fired(tmp_path, series, alert) if fires else judged(tmp_path, series, alert, [])) == ""


@pytest.mark.parametrize("alert", SERIES)
def test_nothing_is_told_of_a_run_that_goes_well(alert: str, tmp_path: Path) -> None:
    rules_of("job", tmp_path)
    series = {each.format(run="demo", namespace="team"): "0x10" for each in SERIES.values()}
    assert judged(tmp_path, series, alert, []) == ""


def test_an_exit_code_that_is_scraped_once_fires(tmp_path: Path) -> None:
    """The endpoint ends seconds after the exit code is known."""
    rules_of("job", tmp_path)
    series = {SERIES["RanklaunchExitCode"].format(run="demo", namespace="team"): "_x10 1 stale"}
    assert fired(tmp_path, series, "RanklaunchExitCode") == ""


@pytest.mark.parametrize("engine", OF_KUBERNETES)
def test_a_pod_that_has_failed_is_told_of(engine: str, tmp_path: Path) -> None:
    """By kube-state-metrics: the endpoint has gone with the pod."""
    rules_of(engine, tmp_path)
    text = 'kube_pod_status_phase{{phase="{phase}", pod="{pod}", namespace="team"}}'
    assert fired(tmp_path, {text.format(phase="Failed", pod=POD_NAMES[engine]): "0 0 0 0 1x8"}, "RanklaunchFailed") == ""
    others = {
        text.format(phase="Failed", pod=f"other-{POD_NAMES[engine]}"): "1x10",
        text.format(phase="Running", pod=POD_NAMES[engine]): "1x10",
    }
    assert judged(tmp_path, others, "RanklaunchFailed", []) == ""


@pytest.mark.parametrize("engine", OF_KUBERNETES)
def test_the_monitor_finds_port_and_pods(engine: str, tmp_path: Path) -> None:
    done = rendered_with("4", tmp_path, case(CASE_OF[engine]), ON)
    objects = parse(done.stdout)
    spec = of_kind(objects, "PodMonitor")["spec"]
    (label,) = spec["selector"]["matchLabels"].items()
    for pod in pod_templates([each for each in objects if each["kind"] != "Pod"]):
        if engine == "trainjob":  # by the JobSet that Trainer makes, which has the TrainJob's name
            assert label == ("jobset.sigs.k8s.io/jobset-name", RELEASE)
        else:
            assert label in pod["metadata"]["labels"].items()
        ports = {each["name"]: each["containerPort"] for each in pod["spec"]["containers"][0]["ports"]}
        assert ports[spec["podMetricsEndpoints"][0]["port"]] == 9400
    assert set(PODS) == set(OF_KUBERNETES)


def test_shapes_of_what_stands_beside_a_run(tmp_path: Path) -> None:
    objects = parse(rendered_with("4", tmp_path, WATCHED, ON).stdout)
    for kind in ("PodMonitor", "PrometheusRule"):
        assert misfits_of_custom(of_kind(objects, kind)) == []
        assert of_kind(objects, kind)["metadata"]["labels"]["release"] == "prometheus"  # by which an operator may choose them
    assert misfits_of_core(of_kind(objects, "NetworkPolicy")) == []


def test_pods_of_a_run_reach_each_other_and_scrapers_the_metrics_alone() -> None:
    spec = of_kind(parse(rendered("4", WATCHED)), "NetworkPolicy")["spec"]
    among, scrapers = spec["ingress"]
    assert spec["podSelector"] == among["from"][0]["podSelector"] == {"matchLabels": {"app.kubernetes.io/instance": "demo"}}
    assert "ports" not in among
    assert scrapers["ports"] == [{"port": 9400, "protocol": "TCP"}]
    assert scrapers["from"][0]["namespaceSelector"]["matchExpressions"][0]["values"] == ["monitoring"]


def test_values_of_a_running_job_reach_ranklaunch(tmp_path: Path) -> None:
    (pod, *_) = pod_templates([each for each in parse(rendered("4", WATCHED)) if each["kind"] == "Job"])
    container = pod["spec"]["containers"][0]
    env = {each["name"]: each.get("value", "1") for each in container["env"]}
    assert {name: env[name] for name in ("RANKLAUNCH_MAX_RESTARTS", "RANKLAUNCH_HANG", "RANKLAUNCH_HANG_S", "RANKLAUNCH_SAVE_SIGNAL")} == {
        "RANKLAUNCH_MAX_RESTARTS": "3",
        "RANKLAUNCH_HANG": "restart",
        "RANKLAUNCH_HANG_S": "900",
        "RANKLAUNCH_SAVE_SIGNAL": "USR1",
    }
    assert env["RANKLAUNCH_METRICS_PORT"] == "9400"


def test_logs_of_a_root_that_cannot_be_written_go_to_a_volume() -> None:
    (pod, *_) = pod_templates([each for each in parse(rendered("4", WATCHED)) if each["kind"] == "Job"])
    container = pod["spec"]["containers"][0]
    (logs,) = [Path(each["value"]) for each in container["env"] if each["name"] == "RANKLAUNCH_LOG_DIR"]
    (mount,) = [each for each in container["volumeMounts"] if Path(each["mountPath"]) in logs.parents]
    assert next(each for each in pod["spec"]["volumes"] if each["name"] == mount["name"])["emptyDir"] == {}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"security": {"readOnlyRootFilesystem": False}}, "Its logs are lost with the pod. To keep the logs of all nodes, mount"),
        ({"env": {"RANKLAUNCH_LOG_DIR": "/logs"}}, "Its logs are lost with the pod. To keep the logs of all nodes, mount"),
        ({"env": {"RANKLAUNCH_LOG_DIR": "/data/logs"}}, "from the logs in /data/logs; of all nodes"),
        (
            {"envFrom": [{"configMapRef": {"name": "a"}}]},
            "Warning: security.readOnlyRootFilesystem: logs cannot be written unless envFrom sets RANKLAUNCH_LOG_DIR",
        ),
        ({"restart": {"inPlace": 0}}, "Warning: hang.action=restart: acts as stop, because restart.inPlace is 0."),
        ({"engine": "volcano", "networkPolicy": {"enabled": False, "metricsNamespaces": []}}, "Warning: metrics.podMonitor: Volcano makes"),
        ({}, "exec $POD -c train -- ranklaunch save"),
        ({}, "port-forward $POD 9400"),
    ],
)
def test_notes_say_how_a_run_is_asked(changes: Object, said: str, tmp_path: Path) -> None:
    changed = tmp_path / "changes.json"
    changed.write_text(json.dumps(changes), encoding="utf-8")
    done = helm("4", "install", RELEASE, RUN, "--namespace", "team", "--values", WATCHED, "--values", changed, "--dry-run=client")
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
    if said.startswith("Warning: "):  # those of `ranklaunch spec`, in the same words
        values: Object = {**load(WATCHED)}
        for name, value in changes.items():
            values[name] = {**values.get(name, {}), **value} if isinstance(value, dict) else value
        path = tmp_path / "values.json"
        path.write_text(json.dumps(values), encoding="utf-8")
        assert (
            said.removeprefix("Warning: ").rstrip(".")
            in helpers.call("spec", values["engine"], "--name", "demo", "--values", str(path)).err
        )
