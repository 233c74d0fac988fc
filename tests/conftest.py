"""Rules that every test keeps: the environment stays as it was, processes only where they are the subject, no silent skip in CI."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

HERE = Path(__file__).resolve().parent
# Folders of files, each of which would be looked through by each worker.
collect_ignore = ["children", "golden"]
# Tests of these folders start processes by their nature.
WITH_PROCESSES = ("supervise", "processes", "output", "control", "notify", "cli", "cluster", "launchers", "charts")
# Of these, all have a marker: what they need is installed only where they are asked for.
MARKED = {"launchers": "launchers", "charts": "charts", "cluster": "chaos"}
STARTERS = ((subprocess, "Popen"), (os, "fork"), (os, "forkpty"), (os, "posix_spawn"), (os, "posix_spawnp"), (os, "system"))

# How long an example takes says something of the machine, not of the code.
hypothesis.settings.register_profile("any machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("any machine")


def in_ci() -> bool:
    return bool(os.environ.get("CI"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew; read their diff before committing it")
    what = "leave out what is marked one_python, and of each test that starts processes all cases but the first"
    parser.addoption("--other-python", action="store_true", help=what)


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # run in a shell's background: all that tests start and interrupt would have that
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not any(line.startswith("processes:") for line in config.getini("markers")):
        config.addinivalue_line("markers", "processes: starts processes; all other tests are kept from it")
    if config.getoption("--update-golden") and in_ci():
        msg = "--update-golden is refused where CI is set: golden files are renewed by a person who reads their diff"
        raise pytest.UsageError(msg)
    if os.environ.get("RECORD_ENDS"):
        from ends import recording

        recording.register(config)


@pytest.hookimpl(hookwrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    _mark(items)
    yield
    if config.getoption("--other-python"):  # of those that -m has left
        items[:] = _shown_by_another_python(items)


def _shown_by_another_python(items: list[pytest.Item]) -> list[pytest.Item]:
    first = {item.nodeid.partition("[")[0]: item for item in reversed(items)}
    return [
        item
        for item in items
        if not item.get_closest_marker("one_python")
        and (not item.get_closest_marker("processes") or first[item.nodeid.partition("[")[0]] is item)
    ]


def _mark(items: list[pytest.Item]) -> None:
    folders = {path: path.relative_to(HERE).parts[0] for path in {item.path for item in items} if HERE in path.parents}
    for item in items:
        folder = folders.get(item.path, "")
        if folder in WITH_PROCESSES:
            item.add_marker("processes")
        if folder in MARKED:
            item.add_marker(MARKED[folder])


@pytest.fixture(autouse=True)
def unchanged_environment() -> Iterator[None]:
    before = dict(os.environ)
    yield
    after = dict(os.environ)
    for env in (before, after):
        env.pop("PYTEST_CURRENT_TEST", None)  # pytest's own, another one in each phase of a test
    if before != after:
        os.environ.clear()
        os.environ.update(before)
        changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
        pytest.fail(f"the test changed os.environ and left it so: {', '.join(changed)}", pytrace=False)


@pytest.fixture(autouse=True)
def no_processes(unchanged_environment: None, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    # unchanged_environment comes first, so that it looks again when monkeypatch has undone what a test did.
    if any(request.node.get_closest_marker(name) for name in ("processes", "training")):
        return

    def refuse(*_: object, **__: object) -> None:
        pytest.fail("a test without the marker `processes` starts a process")

    for module, name in STARTERS:
        monkeypatch.setattr(module, name, refuse)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    outcome: Any = yield
    _fail_if_skipped(outcome.get_result())


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report() -> Iterator[None]:
    outcome: Any = yield
    _fail_if_skipped(outcome.get_result())


def _fail_if_skipped(report: Any) -> None:
    """In CI everything is there that a test may need, so a skip hides something."""
    if in_ci() and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"skipped, which CI takes for a failure: {reason}"
