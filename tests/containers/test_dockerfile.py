"""What must hold in every Dockerfile, and how they are read. Starts nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbench.containers import docker, dockerfile

every_dockerfile = pytest.mark.parametrize("path", docker.DOCKERFILES, ids=lambda path: path.stem)


def test_there_is_one_for_each_kind_of_device() -> None:
    assert [path.stem for path in docker.DOCKERFILES] == ["ascend", "cpu", "gpu"]


@every_dockerfile
def test_base_is_the_user_s_to_choose(path: Path) -> None:
    own, given = (dockerfile.steps(path, arguments) for arguments in ({}, {"BASE": "team/train:1"}))
    assert own[1].name == given[1].name == "FROM"
    assert given[1].text == "team/train:1"
    assert own[1].text.count("/") <= 1  # of Docker's own registry, no other


@every_dockerfile
def test_ends_the_same(path: Path) -> None:
    ends = [(step.name, step.text) for step in dockerfile.steps(path, {})][-3:]
    assert ends == [("USER", "1000"), ("WORKDIR", "/home/ma-user"), ("ENTRYPOINT", '["ranklaunch", "run"]')]


def test_reads_continued_lines_and_variables(tmp_path: Path) -> None:
    path = tmp_path / "Dockerfile"
    path.write_text("ARG A=1\n# no\nENV B=$A-${A}\nRUN x $A \\\n# between\n && y\nCOPY $B /to/\n")
    steps = dockerfile.steps(path, {"A": "2"})
    assert [(step.name, step.text) for step in steps][1:] == [("ENV", "B=2-2"), ("RUN", "x $A  && y"), ("COPY", "2-2 /to/")]
    assert steps[2].variables == {"A": "2", "B": "2-2"}


def test_unknown_instruction_is_refused(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("HEALTHCHECK NONE\n")
    with pytest.raises(ValueError, match="HEALTHCHECK"):
        dockerfile.steps(tmp_path / "Dockerfile", {})
