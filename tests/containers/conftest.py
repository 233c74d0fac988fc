"""Images, built once per worker, and containers of them of which nothing is left."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from container_jobs import Containers

from testbench.containers import docker
from testbench.containers.docker import Image
from testbench.jobs.users import open_to_all
from testbench.leftovers import fail_if_left, pytest_runtest_makereport

__all__ = ["pytest_runtest_makereport"]


@pytest.fixture(scope="session")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("context")
    docker.make_context(folder)
    return folder


@pytest.fixture(scope="session")
def built(context: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Image]]:
    """Takes a Dockerfile's name. They are large, so they go when the worker ends."""
    images: dict[str, Image] = {}

    def build(name: str) -> Image:
        if name not in images:
            folder = tmp_path_factory.mktemp("image")
            images[name] = docker.build(docker.CONTAINERS / name, context, folder)
        return images[name]

    yield build
    for image in images.values():
        shutil.rmtree(image.root.parent)


@pytest.fixture
def containers(built: Callable[[str], Image], tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Containers]:
    open_to_all(tmp_path)
    started = Containers(built("cpu.Dockerfile"), tmp_path)
    yield started
    fail_if_left(request, started.clean_up())
