"""Objects beside the job: NetworkPolicy, PodMonitor, and PrometheusRule with alerts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ranklaunch.specs import pod
from ranklaunch.specs.model import JobSpec

Object = dict[str, Any]
# Pattern of a pod's name after the job's name and a dash.
PODS: Mapping[str, str] = {
    "volcano": "(ps|worker)-[0-9]+",
    "jobset": "worker-0-[0-9]+-[a-z0-9]+",
    "job": "[0-9]+-[a-z0-9]+",
    "trainjob": "node-0-[0-9]+-[a-z0-9]+",
    "mpijob": "(launcher-[a-z0-9]+|worker-[0-9]+)",
    "acjob": "(master|worker)-[0-9]+",
}


def companions(spec: JobSpec) -> list[Object]:
    """Return the objects that the specification asks for."""
    return [
        {"apiVersion": version, "kind": kind, "metadata": _metadata(spec, name), "spec": body} for version, kind, name, body in _made(spec)
    ]


def _made(spec: JobSpec) -> Iterator[tuple[str, str, str, Object]]:
    if spec.network_policy.enabled:  # Volcano's own policy has the job's name
        yield "networking.k8s.io/v1", "NetworkPolicy", f"{spec.name}-pods", _policy(spec)
    if spec.metrics.pod_monitor:
        endpoint = {"port": "metrics", "path": "/metrics"}
        yield "monitoring.coreos.com/v1", "PodMonitor", spec.name, {"podMetricsEndpoints": [endpoint], "selector": selector(spec)}
    if spec.metrics.rules:
        rules = [_alert(spec, alert) for alert in ALERTS]
        yield "monitoring.coreos.com/v1", "PrometheusRule", spec.name, {"groups": [{"name": f"ranklaunch-{spec.name}", "rules": rules}]}


def _metadata(spec: JobSpec, name: str) -> Object:
    place = {"namespace": spec.namespace} if spec.namespace else {}
    notes = {"annotations": dict(sorted(spec.annotations.items()))} if spec.annotations else {}
    return {"name": name, **place, "labels": pod.labels(spec), **notes}


def selector(spec: JobSpec) -> Object:
    """Return the selector of the job's pods. For a TrainJob it uses JobSet's label: an existing runtime does not set ours."""
    label = "jobset.sigs.k8s.io/jobset-name" if spec.engine == "trainjob" else "app.kubernetes.io/instance"
    return {"matchLabels": {label: spec.name}}


def _policy(spec: JobSpec) -> Object:
    """Return the spec of the NetworkPolicy. Pods of the job may use any port: NCCL, HCCL, Gloo, MPI and Ray choose their own."""
    ingress: list[Object] = [{"from": [{"podSelector": selector(spec)}]}]
    if spec.metrics.enabled:
        names = list(spec.network_policy.metrics_namespaces)
        among = {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": names}]}
        scrapers = {"from": [{"namespaceSelector": among}]} if names else {}
        ingress.append({**scrapers, "ports": [{"port": spec.metrics.port, "protocol": "TCP"}]})
    return {"podSelector": selector(spec), "policyTypes": ["Ingress"], "ingress": ingress}


class Alert(NamedTuple):
    """Alert of a PrometheusRule.

    lasting: time that the expression must hold. In the texts, NAME stands for the job's name, OURS for the labels of this run's metrics,
    and THEIRS for the labels of its pods in metrics of kube-state-metrics. The latter are needed at a job's end: a pod's own endpoint may
    disappear before it is scraped again.
    """

    alert: str
    expr: str
    lasting: str
    severity: str
    summary: str


ALERTS = (
    Alert(
        "RanklaunchHang", "max by (namespace) (ranklaunch_hang_suspected{OURS}) == 1", "0m", "critical",
        "No rank of NAME moves: ranklaunch status in one of its pods names the suspects",
    ),
    Alert(
        "RanklaunchSlow", "max by (namespace) (ranklaunch_slow{OURS}) == 1", "0m", "warning",
        "NAME is slower than before: ranklaunch status in one of its pods shows the steps of each rank",
    ),
    Alert(
        "RanklaunchRestarts", "max by (namespace) (increase(ranklaunch_restarts_total{OURS}[15m])) > 0", "0m", "warning",
        "The ranks of NAME have failed, and started again in place",
    ),
    # The endpoint has the exit code only while the command for the verdict runs, so the alert must not wait.
    Alert(
        "RanklaunchExitCode", "max by (namespace) (ranklaunch_exit_code{OURS}) != 0", "0m", "warning",
        "A start of NAME has failed: the termination message of its pods says why",
    ),
    # 1m: a pod that the engine replaces disappears sooner, and raises no alert.
    Alert(
        "RanklaunchFailed", 'max by (namespace) (kube_pod_status_phase{phase="Failed", THEIRS}) == 1', "1m", "critical",
        "NAME has failed: the termination message of its pods says why",
    ),
)  # fmt: skip


def _alert(spec: JobSpec, alert: Alert) -> Object:
    ours, theirs = f'job_name="{spec.name}"', f'pod=~"{spec.name}-{PODS[spec.engine]}"'
    if spec.namespace:  # an empty namespace too: some scrapers add none
        ours, theirs = f'{ours}, namespace=~"{spec.namespace}|"', f'{theirs}, namespace="{spec.namespace}"'
    return {
        "alert": alert.alert,
        "expr": alert.expr.replace("OURS", ours).replace("THEIRS", theirs),
        "for": alert.lasting,
        "labels": {"severity": alert.severity, "job_name": spec.name},
        "annotations": {"summary": alert.summary.replace("NAME", spec.name)},
    }
