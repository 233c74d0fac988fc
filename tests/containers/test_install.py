"""containers/install.sh by itself: without root's folders, and what it refuses."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ranklaunch import __version__
from testbench.containers import debian, docker

pytestmark = [pytest.mark.processes, pytest.mark.launchers]


def install(
    *words: object, env: dict[str, str] | None = None, blocks: int | str = "unlimited", cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """By somebody whose files nobody else may read. blocks: of 512 bytes, that a file may have."""
    start = f'umask 077; ulimit -f {blocks}; exec sh "$@"'
    command = ["sh", "-c", start, "sh", str(docker.CONTAINERS / "install.sh"), *map(str, words)]
    return subprocess.run(command, cwd=cwd, env={**os.environ, **(env or {})}, capture_output=True, text=True, timeout=600, check=False)


def test_installs_where_it_is_told(tmp_path: Path) -> None:
    """Two times: the second takes the first one's place, as the first does that of one that has failed. What pip and Python are told for
    others changes nothing."""
    debian.own_wheel(tmp_path)
    folders = ("--python", sys.executable, "--prefix", tmp_path / "own", "--bin", tmp_path / "bin")
    (tmp_path / "pinned").write_text("jinja2==3.0.0\n")  # as an image pins its own packages
    others = {
        "PIP_TARGET": str(tmp_path / "elsewhere"), "PIP_USER": "1", "PIP_CONSTRAINT": str(tmp_path / "pinned"), "PIP_NO_DEPS": "1",
        "PYTHONPATH": str(tmp_path),
    }  # fmt: skip
    tag = "import sys; print(sys.implementation.cache_tag)"
    of_ranks = subprocess.run(["python3", "-c", tag], capture_output=True, text=True, check=True).stdout.strip()
    (tmp_path / "venv.py").write_text("raise SystemExit('venv of PYTHONPATH')\n")
    broken = tmp_path / "python"  # is ended while it makes the environment
    broken.write_text(f'#!/bin/sh\ncase "$*" in *"-m venv"*) mkdir {tmp_path}/own/include; exit 137 ;; esac\nexec {sys.executable} "$@"\n')
    broken.chmod(0o755)
    assert install("--python", broken, *folders[2:], tmp_path).returncode == 137
    failed = install(*folders, tmp_path, blocks=200)  # too little for pip itself, as on a full disk
    assert failed.returncode != 0
    assert (tmp_path / "own/bin/python").exists()
    failed = install(*folders, tmp_path, env={"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""})  # without Jinja2
    assert (failed.returncode, (tmp_path / "bin/ranklaunch").exists()) == (1, False)
    for _ in range(2):
        done = install(*folders, tmp_path, env=others)
        assert (done.returncode, done.stdout) == (0, f"ranklaunch {__version__}\n"), done.stderr
    assert (tmp_path / "bin/ranklaunch").resolve() == tmp_path / "own/bin/ranklaunch"
    assert not (tmp_path / "elsewhere").exists()
    compiled = {path.name.split(".")[1] for path in (tmp_path / "own").rglob("rankside/**/*.pyc")}
    assert {sys.implementation.cache_tag, of_ranks} <= compiled
    made = [tmp_path / "own", tmp_path / "bin", *(tmp_path / "own").rglob("*")]  # the container's user is another
    assert not [path for path in made if path.exists() and path.stat().st_mode & 0o044 != 0o044]


# A checkout's own way to make its wheel, which is there already.
BACKEND = """
import pathlib, shutil
def build_wheel(folder, *_, **__):
    (wheel,) = pathlib.Path("..").glob("*.whl")
    return shutil.copy(wheel, folder) and wheel.name
"""


def test_a_checkout_beside_is_not_taken_for_a_package_of_the_index(tmp_path: Path) -> None:
    debian.own_wheel(tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    other = tmp_path / "index" / wheel.name.replace(__version__, "99.0")
    other.parent.mkdir()
    with zipfile.ZipFile(other, "w") as file:
        file.writestr("ranklaunch-99.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: ranklaunch\nVersion: 99.0\n")
        file.writestr("ranklaunch-99.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr("ranklaunch-99.0.dist-info/RECORD", "")
    checkout = tmp_path / "ranklaunch"
    checkout.mkdir()
    (checkout / "own.py").write_text(BACKEND)
    (checkout / "pyproject.toml").write_text('[build-system]\nrequires = []\nbuild-backend = "own"\nbackend-path = ["."]\n')
    folders = ("--python", sys.executable, "--prefix", tmp_path / "own", "--bin", tmp_path / "bin")
    done = install(*folders, "ranklaunch", env={"PIP_FIND_LINKS": str(other.parent), "CDPATH": f".:{tmp_path}"}, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"ranklaunch {__version__}\n"), done.stderr


def test_a_version_comes_from_the_index_that_is_configured(tmp_path: Path) -> None:
    index = tmp_path / "index"
    index.mkdir()
    debian.own_wheel(index)
    folders = ("--python", sys.executable, "--prefix", tmp_path / "own", "--bin", tmp_path / "bin")
    env = {"PIP_FIND_LINKS": str(index)}
    done = install(*folders, "--yaml", __version__, env=env, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"ranklaunch {__version__}\n"), done.stderr
    (tmp_path / "values.yaml").write_text("nodes: 3\n")
    words = ("spec", "job", "--name", "llm", "--image", "team/train:1", "--values", "values.yaml", "--", "train.py")
    made = subprocess.run([tmp_path / "bin/ranklaunch", *words], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (made.returncode, "completions: 3" in made.stdout) == (0, True), made.stderr
    done = install(*folders, "99.0", env=env, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "pip did not install ranklaunch 99.0: see above" in done.stderr


def test_removes_nothing_but_an_earlier_ranklaunch(tmp_path: Path) -> None:
    wheel = tmp_path / f"ranklaunch-{__version__}-py3-none-any.whl"
    wheel.touch()
    given = ("--python", sys.executable, "--prefix", tmp_path / "own")

    def refused(*words: object) -> str:
        before = sorted(tmp_path.rglob("*"))
        done = install(*given, *words)
        assert (done.returncode, done.stdout, sorted(tmp_path.rglob("*"))) == (1, "", before)
        return done.stderr

    (tmp_path / "own").mkdir()
    assert "--bin" in refused("--bin", tmp_path / "own/bin", wheel)
    (tmp_path / "own/pyvenv.cfg").touch()  # an environment of somebody else's
    assert "it has other files, which would be removed" in refused("--bin", tmp_path / "bin", wheel)
    (tmp_path / "own/pyvenv.cfg").unlink()
    (tmp_path / "bin/ranklaunch").mkdir(parents=True)
    assert f"{tmp_path}/bin/ranklaunch is a folder" in refused("--bin", tmp_path / "bin", wheel)
    (tmp_path / "bin/ranklaunch").rmdir()
    (tmp_path / "link").symlink_to("own")
    assert f"--prefix {tmp_path}/link: a link" in refused("--prefix", tmp_path / "link", "--bin", tmp_path / "bin", wheel)
    inside = wheel.rename(tmp_path / "own" / wheel.name)
    assert "is in it, and would be removed" in refused("--bin", tmp_path / "bin", inside)


def test_of_several_wheels_none_is_taken(tmp_path: Path) -> None:
    wheels = [tmp_path / f"ranklaunch-{version}-py3-none-any.whl" for version in ("0.10.0", "0.9.0")]
    for wheel in wheels:
        wheel.write_text("")
    done = install("--prefix", tmp_path / "own", "--bin", tmp_path / "bin", tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{tmp_path}: 2 wheels of ranklaunch" in done.stderr
    assert all(str(wheel) in done.stderr for wheel in wheels)
    assert sorted(tmp_path.iterdir()) == sorted(wheels)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "expected a wheel"),
        (("--yaml",), "expected a wheel"),
        (("--prefix",), "--prefix: expected a value after it"),
        (("--python=python3", "."), "--python=python3: expected --python, --prefix or --bin with a value, or --yaml"),
        (("0.2.0", "--yaml"), "--yaml: expected nothing after 0.2.0; put options before it"),
        (("v0.2.0",), "v0.2.0: no such file or folder; a version has the form 0.2.0"),
        ((">=0.2",), ">=0.2: no such file or folder; a version has the form 0.2.0"),
        (("--python", "false", "0.2.0"), "false: too old, or broken"),
        (("/nowhere",), "/nowhere: no such file or folder"),
        (("/usr",), "/usr: expected ranklaunch-*.whl or pyproject.toml in it"),
        (("--pyton", "python3", "."), "--pyton: expected --python, --prefix or --bin"),
        (("--python", "no-python", docker.CONTAINERS.parent), "no-python: not found"),
        (("--python", "false", docker.CONTAINERS.parent), "false: too old, or broken"),
        (("--python", "true", docker.CONTAINERS.parent), "true: too old, or broken"),
        (("--python", sys.executable, "--prefix", "/opt/x/../y", docker.CONTAINERS.parent), "expected a path without . and .."),
        (
            ("--python", sys.executable, "--prefix", "/opt/x//", "--bin", "/opt/x/bin", docker.CONTAINERS.parent),
            "of the environment itself",
        ),
        (("--python", sys.executable, "--prefix", "//", docker.CONTAINERS.parent), "--prefix /: expected a folder of its own"),
        (("--python", sys.executable, "--prefix", "own", docker.CONTAINERS.parent), "--prefix own: expected an absolute path"),
        (("--python", sys.executable, "--prefix", "/a b", docker.CONTAINERS.parent), "--prefix /a b: expected letters"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_says_what_is_wrong(words: tuple[object, ...], said: str) -> None:
    done = install(*words)
    assert (done.returncode, done.stdout) == (1, "")
    assert said in done.stderr
