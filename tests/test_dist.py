"""The steps of a release that need no account (tools/dist.py, `make dist`): what is refused, and the whole of it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import helpers
import pytest

from ranklaunch import __version__
from testbench import places

pytestmark = [pytest.mark.processes, pytest.mark.one_python]

CHANGELOG = """# Changelog

## [Unreleased]

- something

## [1.2.0] - 2026-12-01

What is new.

### For slurm

- a thing

## [1.2.0rc1]

A candidate.

## 1.1.0

The one before.

## [1.0.0]
"""


@pytest.fixture(scope="module")
def dist() -> ModuleType:
    return places.module("tools/dist.py")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What a release looks at in a repository, committed."""
    package = tmp_path / "tree" / "src" / "ranklaunch"
    chart = tmp_path / "tree" / "charts" / "one"
    package.mkdir(parents=True)
    chart.mkdir(parents=True)
    (package / "version.py").write_text('"""x"""\n\n__version__ = "1.2.0"\n')
    (chart / "Chart.yaml").write_text('name: one\nversion: 1.2.0\nappVersion: "1.2.0"\n')
    (tmp_path / "tree" / "CHANGELOG.md").write_text(CHANGELOG)
    for words in (("init", "-q"), ("add", "."), ("-c", "user.name=x", "-c", "user.email=x@example.org", "commit", "-q", "-m", "x")):
        subprocess.run(["git", *words], cwd=tmp_path / "tree", check=True, timeout=60)
    return tmp_path / "tree"


def refused(dist: ModuleType, tag: str, tree: Path) -> str:
    with pytest.raises(dist.ReleaseError) as caught:
        dist.check_tag(tag, tree)
    return str(caught.value)


def test_tag_is_the_version_of_a_clean_tree_with_a_page(dist: ModuleType, tree: Path) -> None:
    dist.check_tag("v1.2.0", tree)
    assert refused(dist, "v1.2.1", tree) == "tag v1.2.1: the package has version 1.2.0, whose tag is v1.2.0"
    assert "whose tag is v1.2.0" in refused(dist, "1.2.0", tree)
    (tree / "more.py").touch()
    assert refused(dist, "v1.2.0", tree).endswith("commit or remove these files:\n?? more.py")
    (tree / "CHANGELOG.md").write_text("## [1.2.0rc1]\n\nA candidate.\n\n## [1.2.0]\n\n## [1.1.0]\n\nOld.\n")
    assert refused(dist, "v1.2.0", tree).startswith("CHANGELOG.md has no page of 1.2.0: write")


def test_page_of_a_version_is_the_text_of_the_release(dist: ModuleType, tree: Path) -> None:
    assert dist.notes("v1.2.0", tree) == "What is new.\n\n### For slurm\n\n- a thing\n"
    assert dist.notes("1.2.0rc1", tree) == "A candidate.\n"
    assert dist.notes("v1.1.0", tree) == "The one before.\n"
    for absent in ("v1.0.0", "v1.2", "v1.2.0rc", "v2.0.0"):
        with pytest.raises(dist.ReleaseError, match=r"CHANGELOG\.md has no page of"):
            dist.notes(absent, tree)


def test_charts_have_the_version_of_the_package(dist: ModuleType, tree: Path) -> None:
    dist.check_charts(helpers.ROOT)
    dist.check_charts(tree)
    (tree / "charts/one/Chart.yaml").write_text('name: one\nversion: 1.2.0\nappVersion: "1.1.0"\n')
    with pytest.raises(dist.ReleaseError, match=r"charts/one/Chart\.yaml has .*1\.1\.0.*, the package 1\.2\.0"):
        dist.check_charts(tree)


def test_builds_that_differ_are_listed_by_member(dist: ModuleType, tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a.whl", "b.whl")]
    for path, mode in zip(paths, (0o644, 0o600)):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("same.py", "")
            info = zipfile.ZipInfo("other.py")
            info.external_attr = mode << 16
            archive.writestr(info, "x")
    (line,) = dist.differences(*paths).splitlines()
    assert line.startswith("  other.py: ('0o644', ")
    assert "('0o600', " in line


def test_two_builds_have_the_same_bytes_and_valid_metadata(dist: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In other folders, umasks and time zones. Earlier files of ours in the folder make way; others stay."""
    umasks = {setting.umask for setting in dist.SETTINGS}
    assert umasks == {0o022, 0o077}
    for name in ("ranklaunch-0.0.1-py3-none-any.whl", "ranklaunch-0.0.1.tar.gz", "notes.md"):
        (tmp_path / name).touch()
    assert dist.main(["--build-only", "--out", str(tmp_path)]) == 0, capsys.readouterr().err
    files = [f"ranklaunch-{__version__}-py3-none-any.whl", f"ranklaunch-{__version__}.tar.gz"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.md", *files]
    printed = capsys.readouterr().out
    assert all(f"{name}: {(tmp_path / name).stat().st_size} bytes, sha256 {dist.digest(tmp_path / name)}\n" in printed for name in files)


@pytest.mark.launchers
def test_every_python_installs_it_by_pip_pipx_and_uv(dist: ModuleType, tmp_path: Path) -> None:
    """As `make dist` does, in the workflow of a release too. Needs pip's index."""
    command = [sys.executable, str(helpers.ROOT / "tools" / "dist.py"), "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, done.stderr
    for version in dist.pythons():
        assert f"Python {version}: pip, pipx and uv install it, and it is ranklaunch {__version__}\n" in done.stdout
