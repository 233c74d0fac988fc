"""What an upgrade does to a run that is there, which no engine lets anybody change: a stand-in for the API server has it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from testbench.judges.charts import CASES, HELMS, RUN, Object, every_helm, helm, load, parse, rendered
from testbench.serving import serving

FIRST = {load(path)["engine"]: path for path in reversed(CASES)}
CORE = [{"name": f"{kind.lower()}s", "kind": kind, "namespaced": True, "verbs": ["get"]} for kind in ("ConfigMap", "Pod", "Service")]
KINDS = ("Job", "JobSet", "TrainJob", "MPIJob", "AscendJob")


def run_of(text: str) -> Object:
    (job,) = [each for each in parse(text) if each["kind"] in KINDS]
    return job


class Cluster(BaseHTTPRequestHandler):
    """Knows one resource, and one object of it."""

    live: Object = {}  # noqa: RUF012 - of one test's server
    asked: list[str] = []  # noqa: RUF012

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        type(self).asked.append(path)
        found = self._found(path)
        body = json.dumps(found or {"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}).encode()
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _found(self, path: str) -> Any:
        version, plural = self.live["apiVersion"], f"{self.live['kind'].lower()}s"
        one = {"groupVersion": version, "version": version.partition("/")[2]}
        resource = {"name": plural, "kind": self.live["kind"], "namespaced": True, "verbs": ["get"]}
        return {
            "/version": {"major": "1", "minor": "33", "gitVersion": "v1.33.0"},
            "/api": {"kind": "APIVersions", "versions": ["v1"]},
            "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": CORE},
            "/apis": {"kind": "APIGroupList", "groups": [{"name": version.partition("/")[0], "versions": [one], "preferredVersion": one}]},
            f"/apis/{version}": {"kind": "APIResourceList", "groupVersion": version, "resources": [resource]},
            f"/apis/{version}/namespaces/team/{plural}/{self.live['metadata']['name']}": self.live,
        }.get(path)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[HTTPServer]:
    Cluster.live, Cluster.asked = {}, []
    with serving(Cluster) as server:
        yield server


def upgraded(major: str, values: Path, server: HTTPServer, *changes: str) -> subprocess.CompletedProcess[str]:
    words = [word for change in changes for word in ("--set", change)]
    port = server.server_address[1]
    at = (
        "--namespace",
        "team",
        "--is-upgrade",
        "--dry-run=server",
        "--disable-openapi-validation",
        "--kube-apiserver",
        f"http://127.0.0.1:{port}",
    )
    return helm(major, "template", "demo", RUN, "--values", values, *at, *words)


@every_helm
@pytest.mark.parametrize("engine", FIRST)
def test_a_run_that_is_there_stays_as_it_is(major: str, engine: str, server: HTTPServer) -> None:
    values = FIRST[engine]
    text = rendered("4", values)
    Cluster.live = run_of(text)
    same = upgraded(major, values, server)
    assert same.returncode == 0, same.stderr
    assert parse(same.stdout) == parse(text)
    other = upgraded(major, values, server, "args={--more}")
    assert other.returncode
    assert "name: the run demo exists with other values, and a run cannot be changed: install another release, " in other.stderr
    renamed = upgraded(major, values, server, "args={--more}", "nameSuffix=values")
    assert renamed.returncode == 0, renamed.stderr


@every_helm
@pytest.mark.parametrize("engine", ["job", "jobset", "trainjob", "mpijob"])
def test_what_kueue_has_let_run_is_not_stopped(major: str, engine: str, server: HTTPServer) -> None:
    queue = "scheduling.kueueQueue=research"
    Cluster.live = run_of(rendered("4", FIRST[engine], RUN, "--set", queue))
    place = Cluster.live["spec"]["runPolicy"] if engine == "mpijob" else Cluster.live["spec"]
    assert place["suspend"] is True
    place["suspend"] = False
    done = upgraded(major, FIRST[engine], server, queue)
    assert done.returncode == 0, done.stderr
    assert run_of(done.stdout)["spec"] == Cluster.live["spec"]


def test_another_job_of_the_name_is_none_of_the_charts_business(server: HTTPServer) -> None:
    """One that no chart has made, or one of before there was a digest."""
    Cluster.live = run_of(rendered("4", FIRST["volcano"]))
    del Cluster.live["metadata"]["annotations"]
    assert upgraded("4", FIRST["volcano"], server, "args={--more}").returncode == 0
    assert any(path.endswith("/jobs/demo") for path in Cluster.asked)


@pytest.mark.parametrize("engine", FIRST)
def test_a_digest_in_the_name_is_that_of_the_values(engine: str) -> None:
    suffix = ("--set", "nameSuffix=values")
    names = [run_of(rendered(major, FIRST[engine], RUN, *suffix))["metadata"]["name"] for major in HELMS]
    others = [
        run_of(rendered("4", FIRST[engine], RUN, *suffix, *more))["metadata"]["name"]
        for more in (("--is-upgrade",), ("--set", "nodes=2"), ("--set", "args={x}"))
    ]
    assert names == [others[0]] * 2
    assert len({*names, *others[1:]}) >= 2 + (load(FIRST[engine])["nodes"] != 2)


@every_helm
@pytest.mark.parametrize("chart", ["ranklaunch", "ranklaunch-runtimes"])
def test_bytes_that_are_no_text_are_refused(major: str, chart: str) -> None:
    """Helm makes U+FFFD of them, which the program would find in their place."""
    given = (
        ("--values", FIRST["job"], "--set-string", "args[0]=caf\udce9") if chart == "ranklaunch" else ("--set-string", "env.A=caf\udce9")
    )
    done = helm(major, "template", "demo", RUN.parent / chart, *given)
    assert done.returncode
    assert "expected valid UTF-8, found U+FFFD" in done.stderr


@pytest.mark.parametrize("source", ["cce", "ascend-operator"])
def test_notes_say_whose_volcano_writes_the_table(source: str) -> None:
    words = ("--set", "engine=volcano,device.kind=npu,image.repository=a,script=x", "--set", f"rankTable.source={source}")
    name = ("--set", "rankTable.configMapName=ranktable-demo") if source == "cce" else ()
    done = helm("4", "install", "demo", RUN, "--dry-run=client", *words, *name)
    assert done.returncode == 0, done.stderr
    assert ("configmap1980, which only Huawei's Volcano has" in done.stdout) is (source == "cce")
