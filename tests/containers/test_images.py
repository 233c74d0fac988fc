"""What the Dockerfiles make, where there is no Docker: their own steps in a small Debian, and the ENTRYPOINT as PID 1 of a container
with a read-only root, uid 1000 and no capabilities, in the layout of ModelArts."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable

import pytest
from container_jobs import CODE, Containers

from ranklaunch import __version__
from testbench.containers import docker
from testbench.containers.docker import Image
from testbench.jobs.ends import check_end
from testbench.jobs.users import needs_root

needs_debootstrap = pytest.mark.skipif(not shutil.which("debootstrap"), reason="needs debootstrap, which is a package of Debian and Ubuntu")
pytestmark = [pytest.mark.processes, pytest.mark.launchers, needs_root, needs_debootstrap]

AT_WORK = """
import os, sys, time
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], "uid", os.getuid(), flush=True)
"""
LAST = "time.sleep(600)\n"


@pytest.mark.parametrize("name", [path.name for path in docker.DOCKERFILES])
def test_every_dockerfile_makes_an_image(built: Callable[[str], Image], name: str) -> None:
    image = built(name)
    assert (image.entrypoint, image.user, image.workdir) == (["ranklaunch", "run"], "1000", "/home/ma-user")
    assert said_in(image, "getent", "passwd", "ma-user") == "ma-user:x:1000:100::/home/ma-user:/bin/bash\n"
    assert said_in(image, "ls", "/usr/bin/ssh", "/usr/bin/numactl", "/usr/sbin/sshd").count("\n") == 3
    assert said_in(image, "ls", "/etc/ssh").split() == ["moduli", "ssh_config", "ssh_config.d", "sshd_config", "sshd_config.d"]
    assert said_in(image, "ls", "-A", "/tmp") == ""
    assert said_in(image, "ranklaunch", "--version") == f"ranklaunch {__version__}\n"
    assert said_in(image, "id", "-G") == ("100 1000\n" if name == "ascend.Dockerfile" else "100\n")
    assert said_in(image, "find", "/opt/ranklaunch", "/usr/local", "-writable", "-not", "-type", "l") == ""


def said_in(image: Image, *words: str) -> str:
    popen = docker.start(image, words, {}, [])
    out, err = popen.communicate(timeout=60)
    assert (popen.returncode, err) == (0, b"")
    return out.decode()


def test_two_ranks_succeed(containers: Containers) -> None:
    (containers.code / "train.py").write_text(AT_WORK + "print(sys.argv[1:], flush=True)\n")
    job = containers.run(f"{CODE}/train.py", "--epochs", "3")
    check_end(job, "succeeded", 0)
    assert "[rank 0] rank 0 of 2 uid 1000\n" in job.out.text
    assert "[rank 1] rank 1 of 2 uid 1000\n" in job.out.text
    assert job.log(1).decode().splitlines()[-1] == "['--epochs', '3']"


def test_exit_code_is_the_failing_rank_s(containers: Containers) -> None:
    (containers.code / "train.py").write_text(AT_WORK + "if os.environ['RANK'] == '1': sys.exit(7)\n" + LAST)
    check_end(containers.run(f"{CODE}/train.py"), "failed", 7, culprit={"rank": 1, "exit_code": 7}, victims={0: "SIGTERM"})


def test_sigterm_to_pid_1_ends_all(containers: Containers) -> None:
    (containers.code / "train.py").write_text(AT_WORK + LAST)
    job = containers.run(f"{CODE}/train.py")
    job.out.wait_for("of 2 uid", count=2)
    job.send(signal.SIGTERM)
    check_end(job, "stopped", 143)


@pytest.fixture
def broken(containers: Containers) -> str:
    """A folder for PYTHONPATH with modules that break whoever imports them, and one for the ranks."""
    folder = containers.code / "own"
    folder.mkdir()
    for name in ("jinja2", "json", "ranklaunch", "argparse", "selectors"):
        (folder / f"{name}.py").write_text(f"raise SystemExit('{name} of PYTHONPATH')\n")
    (folder / "model.py").write_text("NAME = 'model of PYTHONPATH'\n")
    return f"{CODE}/own"


def test_python_variables_are_the_ranks_alone(containers: Containers, broken: str) -> None:
    (containers.code / "train.py").write_text(AT_WORK + "import model; print(model.NAME, os.environ['PYTHONPATH'])\n")
    job = containers.run(f"{CODE}/train.py", env={"PYTHONPATH": broken, "RANKLAUNCH_LOG_TAG": "{{ rank }}> "})
    check_end(job, "succeeded", 0)
    assert job.out.text.count("model of PYTHONPATH /") == 2
    assert job.out.text.count(f"/rankside/path:{broken}\n") == 2


def test_simulated_nodes_are_isolated_too(containers: Containers, broken: str) -> None:
    (containers.code / "train.py").write_text(AT_WORK + "import model; print(model.NAME, os.environ['PYTHONPATH'])\n")
    words = ("--nodes", "2", "--slots", "1", "--method", "spawn", "--log-dir", "/tmp/logs", f"{CODE}/train.py")
    job = containers.start("ranklaunch", "simulate", *words, env={"PYTHONPATH": broken})
    assert job.end() == 0, job.err.text
    assert job.out.text.count("model of PYTHONPATH /") == 2
    assert job.out.text.count(f"/rankside/path:{broken}\n") == 2


def test_pythonhome_does_not_reach_ranklaunch(containers: Containers) -> None:
    job = containers.start("ranklaunch", "plan", "train.py", env={"PYTHONHOME": "/nowhere"})
    assert job.end() == 0, job.err.text
    assert "method    spawn" in job.out.text


def test_mpirun_plans_its_own_sshd(containers: Containers) -> None:
    env = {"MA_NUM_HOSTS": "2", "MA_RUN_METHOD": "mpirun"}
    job = containers.start("ranklaunch", "plan", "--format", "json", "train.py", env=env)
    assert job.end() == 0, job.err.text
    plan = json.loads(job.out.text)
    assert plan["services"][0]["argv"][0] == "/usr/sbin/sshd"
    (config,) = [file["text"] for file in plan["files"] if file["path"].endswith("/sshd_config")]
    assert "AllowUsers ma-user" in config
