"""The endpoint of metrics: what it serves, to whom, and that no client of it can hurt a job. Prometheus is the real one."""

from __future__ import annotations

import http.client
import json
import shutil
import signal
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import helpers
import pytest

from ranklaunch.errors import ConfigError
from ranklaunch.notify import endpoint
from testbench.jobs.job import Job, Starter
from testbench.places import child
from testbench.waiting import DEADLINE_S, free_port, sleep_until

pytestmark = pytest.mark.processes
OPENMETRICS = {"Accept": "application/openmetrics-text; version=1.0.0"}


def get(port: int, path: str, method: str = "GET", headers: dict[str, str] | None = None) -> tuple[int, str, str]:
    """Return the status, the type of the content, and the content."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
    try:
        connection.request(method, path, headers=headers or {})
        response = connection.getresponse()
        return response.status, response.getheader("Content-Type", ""), response.read().decode()
    finally:
        connection.close()


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), DEADLINE_S).close()
    except ConnectionRefusedError:
        return False
    return True


def started(as_process: Starter, port: int, *options: object) -> Job:
    job = as_process.spawn(2, child("sleeper.py"), options=("--metrics-port", port, *options))
    job.out.wait_for("ready", 2)
    return job


def test_pages_of_a_job(as_process: Starter) -> None:
    port = free_port()
    job = started(as_process, port)
    assert get(port, "/healthz")[0] == 200
    assert get(port, "/readyz") == (200, "text/plain; charset=utf-8", "running\n")
    status, kind, text = get(port, "/metrics", headers=OPENMETRICS)
    assert (status, kind) == (200, "application/openmetrics-text; version=1.0.0; charset=utf-8")
    assert text.endswith("# EOF\n")
    assert 'ranklaunch_world_size{job_name="local",node="0"} 2\n' in text
    status, kind, text = get(port, "/metrics?x=1")
    assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert "# TYPE ranklaunch_restarts_total counter\n" in text
    assert get(port, "/metrics", "HEAD")[::2] == (200, "")
    assert get(port, "/")[0] == 404
    assert get(port, "/metrics", "POST")[0] == 405
    job.send(signal.SIGTERM)
    assert job.end() == 143
    assert not listens(port)


def test_a_job_that_waits_is_alive_and_not_ready(as_process: Starter) -> None:
    port = free_port()
    options = ("--nodes", 2, "--node", 0, "--hosts", "localhost,localhost", "--muster-port", free_port(), "--metrics-port", port)
    job = as_process.spawn(1, child("sleeper.py"), options=options)
    sleep_until(lambda: listens(port), "nobody listens")
    assert get(port, "/healthz")[0] == 200
    assert get(port, "/readyz") == (503, "text/plain; charset=utf-8", "starting\n")
    job.send(signal.SIGTERM)
    job.end()


def test_clients_that_say_nothing_hold_up_nobody(as_process: Starter) -> None:
    """More than are served at one time, one of them with half a request and one with an endless one."""
    port = free_port()
    job = started(as_process, port)
    with ExitStack() as clients:
        silent = [clients.enter_context(socket.create_connection(("127.0.0.1", port), DEADLINE_S)) for _ in range(20)]
        silent[0].sendall(b"GET /metrics HTTP/1.1\r\n")
        silent[1].sendall(b"GET /" + b"x" * (endpoint.MOST_ASKED + 1))
        assert silent[1].recv(4096).startswith(b"HTTP/1.1 431 ")
        assert get(port, "/healthz")[0] == 200
        assert silent[0].recv(4096) == b""
    job.send(signal.SIGTERM)
    assert job.end() == 143


def test_what_is_no_request_is_told_so(as_process: Starter) -> None:
    port = free_port()
    job = started(as_process, port)
    with socket.create_connection(("127.0.0.1", port), DEADLINE_S) as client:
        client.sendall(b"\x16\x03\x01\x00\xff\r\n\r\n")
        assert client.recv(4096).startswith(b"HTTP/1.1 400 ")
    job.send(signal.SIGTERM)
    assert job.end() == 143


def test_a_port_that_is_taken_ends_no_job(as_process: Starter) -> None:
    port = free_port()
    with socket.socket() as other:
        other.bind(("", port))
        other.listen()
        job = as_process.spawn(1, child("exits.py"), 0, options=("--metrics-port", port))
        assert job.end() == 0
    assert f"metrics: port {port}: Address already in use; set another RANKLAUNCH_METRICS_PORT" in job.err.text


@pytest.mark.parametrize(("port", "of"), [("18889", "muster"), ("6666", "rendezvous"), ("x", "whole number"), ("65536", "65535")])
def test_ports_that_cannot_be(port: str, of: str) -> None:
    with pytest.raises(ConfigError, match=of):
        helpers.plan({"RANKLAUNCH_METRICS_PORT": port}, nodes="2", hosts="a,b", node_index="0", method="pytorch", slots="1")


# Prometheus


def test_promtool_finds_no_fault_in_the_metrics(as_process: Starter) -> None:
    port = free_port()
    job = started(as_process, port)
    page = get(port, "/metrics")[2]
    job.send(signal.SIGTERM)
    job.end()
    judged = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert (judged.returncode, judged.stdout, judged.stderr) == (0, "", "")


@contextmanager
def prometheus(folder: Path, target: int) -> Iterator[str]:
    """Run a Prometheus that scrapes this port of loopback, and yield the address of its API."""
    port = free_port()
    config = folder / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 1s}\n"
        f"scrape_configs: [{{job_name: ranklaunch, static_configs: [{{targets: ['127.0.0.1:{target}']}}]}}]\n"
    )
    program = shutil.which("prometheus")
    assert program, "Debian's package prometheus is not installed"
    words = (program, f"--config.file={config}", f"--storage.tsdb.path={folder}/tsdb", f"--web.listen-address=127.0.0.1:{port}")
    with (folder / "prometheus.log").open("wb") as log, subprocess.Popen(words, stdout=log, stderr=log) as process:
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(DEADLINE_S)


def samples(api: str, query: str) -> list[dict[str, str]]:
    """Return the labels of the samples that Prometheus has for a query."""
    try:
        with urllib.request.urlopen(f"{api}/api/v1/query?query={urllib.parse.quote(query)}", timeout=DEADLINE_S) as answer:
            return [each["metric"] for each in json.load(answer)["data"]["result"]]
    except (OSError, http.client.HTTPException):  # it has not begun, or loads its database
        return []


def test_prometheus_scrapes_a_job(as_process: Starter, tmp_path: Path) -> None:
    port = free_port()
    job = started(as_process, port)
    with prometheus(tmp_path, port) as api:
        sleep_until(lambda: samples(api, "up == 1"), "Prometheus has not scraped")
        (phase,) = sleep_until(lambda: samples(api, 'ranklaunch_phase{phase="running"} == 1'), "no phase")
        assert (phase["job_name"], phase["node"]) == ("local", "0")
        assert len(samples(api, "ranklaunch_rank_cpu_seconds_total")) == 2
    job.send(signal.SIGTERM)
    assert job.end() == 143
