"""SageMaker's own training toolkit on the files below /opt/ml, and ranklaunch on the same: one program, one set of words and variables."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from testbench.containers import debian
from testbench.hosts import Hosts
from testbench.jobs.job import RANKLAUNCH
from testbench.jobs.on_hosts import LONG_S

TOOLKIT = "sagemaker-training==5.1.4"
INSTALL_S = 900
HYPERPARAMETERS = {"epochs": 3, "learning-rate": 0.1, "name": "a b 'c' $HOME", "n": 1, "flags": ["x", "y"], "on": True}
# Of the variables that the toolkit gives, those that ranklaunch does not, as docs/platforms-hpc.md says. SM_LOG_LEVEL: the toolkit's own.
NOT_GIVEN = (
    "SM_TRAINING_ENV", "SM_NUM_NEURONS", "SM_FRAMEWORK_", "SM_LOG_LEVEL",
    *("SM_IS_HETERO", "SM_DISTRIBUTION_", "SM_CURRENT_INSTANCE_GROUP_HOSTS", "SM_INSTANCE_GROUPS"),
)  # fmt: skip

pytestmark = [
    pytest.mark.launchers,
    pytest.mark.skipif(sys.version_info >= (3, 13), reason="the toolkit is made for older Pythons"),
]

# Says what it was given, and ends as it is asked to.
TOLD = """
import json, os, sys
import beside
told = {name: value for name, value in os.environ.items() if name.startswith("SM_")}
with open(os.path.join(os.environ["SM_MODEL_DIR"], "told.json"), "w") as file:
    json.dump({"words": sys.argv[1:], "env": told, "cwd": os.getcwd()}, file)
sys.exit(int(os.environ["SM_HP_CODE"]))
"""
SUM = """
import os, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
one = torch.ones(1)
dist.all_reduce(one)
with open(os.path.join(os.environ["SM_MODEL_DIR"], os.environ["RANK"]), "w") as file:
    file.write(f"sum {int(one)}, {os.environ['SM_CURRENT_HOST']}")
if dist.get_rank() == 3 and os.environ["SM_HP_CODE"] != "0":
    os._exit(int(os.environ["SM_HP_CODE"]))
dist.barrier()
dist.destroy_process_group()
"""

MAIN = "from sagemaker_training.cli.train import main; main()"
# What SageMaker's image of PyTorch has besides the toolkit, as little of it as torchrun needs.
FRAMEWORK = """
from sagemaker_training import entry_point, environment, runner
def main():
    env = environment.Environment()
    how = {"runner_type": runner.RunnerType.TorchDistributed, "capture_error": True}  # without, it takes every end for a success
    entry_point.run(env.module_dir, env.user_entry_point, env.to_cmd_args(), env.to_env_vars(), **how)
"""


@pytest.fixture(scope="module")
def toolkit() -> Path:
    """With what it needs, more than 300 MB, in a folder of its own: it wants other versions than the launchers do. Kept."""

    def install(folder: Path) -> None:
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--target", folder, TOOLKIT], check=True, timeout=INSTALL_S)

    return debian.kept(f"{TOOLKIT.replace('==', '-')}-{sys.implementation.cache_tag}", install)


class Sagemaker:
    """Hosts with the names that SageMaker gives, and what it mounts at /opt/ml on each."""

    def __init__(self, made: Hosts, folder: Path, program: str, **hyperparameters: object) -> None:
        self.hosts, self.folder = list(made), folder
        names = [f"algo-{i + 1}" for i in range(len(made))]
        for host, name in zip(made, names):
            made.name(None, name, host)
            self._lay_out(self.base(host.index), name, names, program, hyperparameters)

    def base(self, node: int) -> Path:
        return self.folder / f"algo-{node + 1}" / "ml"

    def _lay_out(self, base: Path, name: str, names: Sequence[str], program: str, hyperparameters: Mapping[str, object]) -> None:
        config, code = base / "input" / "config", base / "code"
        for each in (config, code, base / "model", base / "output", base / "input" / "data" / "training"):
            each.mkdir(parents=True)
        (code / "train.py").write_text(program)
        (code / "beside.py").write_text("")
        given = {**HYPERPARAMETERS, **hyperparameters, "sagemaker_program": "train.py", "sagemaker_submit_directory": str(code)}
        (config / "hyperparameters.json").write_text(json.dumps({key: json.dumps(value) for key, value in given.items()}))
        resources = {"current_host": name, "hosts": names, "network_interface_name": "eth0"}
        (config / "resourceconfig.json").write_text(json.dumps(resources))
        (config / "inputdataconfig.json").write_text(json.dumps({"training": {"TrainingInputMode": "File"}}))

    def run(self, *words: object, **env: str) -> list[int]:
        """Exit codes of all hosts."""
        started = []
        for host in self.hosts:
            base = self.base(host.index)
            given = {
                **{name: os.environ[name] for name in ("PYTHONPATH", "TMPDIR") if name in os.environ},
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "HOME": str(base.parent),
                "LANG": "C",
                "OMP_NUM_THREADS": "1",
                "SAGEMAKER_BASE_DIR": str(base),
                **env,
            }
            with open(base.parent / "said", "wb") as said:
                started.append(host.popen(words, env=given, cwd=base.parent, stdin=subprocess.DEVNULL, stdout=said, stderr=said))
        codes = [process.wait(LONG_S) for process in started]
        for host in self.hosts:
            host.wait_until_empty()
        return codes

    def theirs(self, toolkit: Path, **env: str) -> list[int]:
        paths = os.pathsep.join(filter(None, (str(toolkit), str(self.folder), os.environ.get("PYTHONPATH", ""))))
        return self.run(sys.executable, "-c", MAIN, PYTHONPATH=paths, **env)

    def ours(self, *options: object, **env: str) -> list[int]:
        return self.run(*RANKLAUNCH, "run", *options, "--log-dir", self.folder / "logs", **env)

    def said(self) -> str:
        return "\n".join((self.base(host.index).parent / "said").read_text(errors="replace")[-4000:] for host in self.hosts)

    def told(self) -> dict[str, Any]:
        """By the program, with /opt/ml as the folder of the job's files."""
        found = self.base(0) / "model" / "told.json"
        assert found.exists(), self.said()
        told: dict[str, Any] = json.loads(found.read_text().replace(str(self.base(0)), "/opt/ml"))
        return told


MakeSagemaker = Callable[..., Sagemaker]


@pytest.fixture
def sagemaker(hosts: Callable[..., Hosts], tmp_path: Path) -> MakeSagemaker:
    made: dict[int, Hosts] = {}

    def make(name: str, nodes: int, program: str, **hyperparameters: object) -> Sagemaker:
        cluster = made.setdefault(nodes, hosts(nodes))
        return Sagemaker(cluster, tmp_path / name, program, **hyperparameters)

    return make


@pytest.mark.parametrize("code", [pytest.param(0, marks=pytest.mark.table), 7])
def test_the_same_program_with_the_same_words(toolkit: Path, sagemaker: MakeSagemaker, code: int) -> None:
    """The toolkit ends with 1 whatever the program's code is; ranklaunch keeps it. Both leave a file with the reason."""
    theirs, ours = (sagemaker(name, 1, TOLD, code=code) for name in ("theirs", "ours"))
    assert theirs.theirs(toolkit) == [1 if code else 0], theirs.said()
    assert ours.ours("--method", "plain") == [code], ours.said()
    assert [(job.base(0) / "output" / "failure").exists() for job in (theirs, ours)] == [bool(code)] * 2
    their_told, our_told = theirs.told(), ours.told()
    assert (our_told["words"], our_told["cwd"]) == (their_told["words"], their_told["cwd"])
    given = {name: value for name, value in their_told["env"].items() if not name.startswith(NOT_GIVEN)}
    assert {name: our_told["env"].get(name) for name in given} == given


@pytest.mark.table  # what a program is told is the same by whatever way it is started
@pytest.mark.parametrize("code", [0, 7])
def test_torchrun_on_two_hosts(toolkit: Path, sagemaker: MakeSagemaker, code: int) -> None:
    theirs = sagemaker("theirs", 2, SUM, code=code, sagemaker_mpi_num_of_processes_per_host=2)
    (theirs.folder / "framework.py").write_text(FRAMEWORK)
    assert theirs.theirs(toolkit, SAGEMAKER_TRAINING_MODULE="framework:main") == [1 if code else 0] * 2, theirs.said()
    ours = sagemaker("ours", 2, SUM, code=code)
    assert ours.ours("--method", "torchrun", "--slots", 2) == [code] * 2, ours.said()
    for job in (theirs, ours):
        sums = [(job.base(node) / "model" / str(2 * node + i)).read_text() for node in (0, 1) for i in (0, 1)]
        assert sums == [f"sum 4, algo-{node}" for node in (1, 1, 2, 2)]
        assert [(job.base(node) / "output" / "failure").exists() for node in (0, 1)] == [bool(code)] * 2
