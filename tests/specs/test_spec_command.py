"""The command line of `ranklaunch spec`: values from options and files, refusals, warnings, sending."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import helpers
import pytest

from ranklaunch.specs.image import parts_of_image

JOB = ("job", "--name", "llm", "--image", "train:1")


def write(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_options_come_before_the_file_and_the_last_set_wins(tmp_path: Path) -> None:
    values = {"name": "file", "nodes": 4, "env": {"A": "1", "B": "2"}, "script": "other.py", "args": ["x"], "engine": "volcano"}
    path = write(tmp_path / "values.json", json.dumps(values))
    options = ("--name", "given", "--env", "A=3", "--set", "nodes=3", "--set", "nodes=2")
    found = helpers.call("spec", "job", "--values", path, "--image", "train", *options, "--", "train.py")
    assert found.code == 0, found.err
    for text in ('name: "given"', "completions: 2", '{"name": "A", "value": "3"}', '{"name": "B", "value": "2"}', 'args: ["train.py"]'):
        assert text in found.out
    assert "kind: Job" in found.out


@pytest.mark.parametrize(
    ("reference", "found"),
    [("new:2", "new:2"), ("new", "new"), ("new@sha256:" + "1" * 64, "new@sha256:" + "1" * 64)],
    ids=["tag", "neither", "digest"],
)
def test_an_image_on_the_command_line_is_the_whole_image(reference: str, found: str, tmp_path: Path) -> None:
    image = {"repository": "old", "tag": "1", "digest": "sha256:" + "0" * 64, "pullPolicy": "Always"}
    path = write(tmp_path / "values.json", json.dumps({"image": image}))
    result = helpers.call("spec", *JOB[:3], "--values", path, "--image", reference, "--", "train.py")
    assert f'image: "{found}"\n' in result.out
    assert 'imagePullPolicy: "Always"\n' in result.out
    result = helpers.call("spec", *JOB[:3], "--values", path, "--image", "new:2", "--set", "image.tag=3", "--", "train.py")
    assert 'image: "new:3"\n' in result.out


def test_of_an_option_given_twice_the_last_counts_and_those_after_the_program_are_the_programs() -> None:
    found = helpers.call("spec", *JOB, "--name", "other", "--env", "A=1", "--env=B=2", "train.py", "--name", "third", "--", "x")
    assert found.code == 0, found.err
    for text in ('name: "other"', '"A"', '"B"', 'args: ["train.py", "--name", "third", "--", "x"]'):
        assert text in found.out


def test_program_may_stand_in_the_file_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "values.json", json.dumps({"module": "pkg.train", "args": ["--x"]}))
    assert 'args: ["-m", "pkg.train", "--x"]' in helpers.call("spec", *JOB, "--values", path).out


@pytest.mark.specs
def test_yaml_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "values.yaml", "nodes: 3\nenv:\n  A: 'yes'\n")
    found = helpers.call("spec", *JOB, "--values", path, "--", "train.py")
    assert "completions: 3" in found.out
    path = write(tmp_path / "wrong.yaml", "nodes: [3\n")
    assert helpers.call("spec", *JOB, "--values", path, "--", "train.py").code == 78
    path = write(tmp_path / "typed.yaml", "env:\n  A: yes\nworkingDir: 2026-01-01\n")
    found = helpers.call("spec", *JOB, "--values", path, "--", "train.py")
    assert found.code == 78
    assert "A: expected a string; a number or true needs quotes" in found.err
    assert "workingDir" in found.err


def test_without_pyyaml_json_works_and_yaml_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib

    real = importlib.import_module

    def missing(name: str, package: Any = None) -> Any:
        if name == "yaml":
            raise ImportError(name)
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", missing)
    path = write(tmp_path / "values.yaml", "nodes: 3\n")
    found = helpers.call("spec", *JOB, "--values", path, "--", "train.py")
    assert found.code == 78
    assert "pip install 'ranklaunch[yaml]', in ranklaunch's own environment" in found.err
    path = write(tmp_path / "values.yaml", '{"nodes": 3}')
    assert helpers.call("spec", *JOB, "--values", path, "--", "train.py").code == 0


@pytest.mark.parametrize(
    ("codes", "says"),
    [("[2,76]", "; after 76, the exit code of a job without progress, the job is not restarted"), ("[2]", ", after any exit code")],
)
def test_restarts_in_place_and_those_of_whoever_runs_the_job_multiply(codes: str, says: str) -> None:
    words = ("spec", "jobset", *JOB[1:], "--env", "RANKLAUNCH_MAX_RESTARTS=3", "--set", f"restart.noRetryExitCodes={codes}")
    found = helpers.call(*words, "--set", "restart.maxRestarts=2", "--", "train.py")
    assert f"restart.maxRestarts=2: a permanent failure is tried 4 times in each of 3 starts{says}" in found.err
    assert "tried" not in helpers.call(*words, "--", "train.py").err


@helpers.for_each([
        ([], 2, "no KIND given: expected one of modelarts, volcano"),
        ([*JOB, "--gpus", "8", "--", "x"], 2, "unknown option '--gpus'; here it is --devices"),
        ([*JOB, "--node-selector", "a=b", "--", "x"], 2, "unknown option '--node-selector'; here it is --set scheduling.nodeSelector=..."),
        ([*JOB, "--dns-policy", "None", "--", "x"], 2, "unknown option '--dns-policy'; here it is podTemplate, which"),
        ([*JOB, "--nods", "2", "--", "x"], 2, "unknown option '--nods', did you mean '--nodes'?"),
        (["vulcano"], 2, "lsf, pbs, flux, did you mean 'volcano'?"),
        ([*JOB, "--nodes", "0", "--", "x"], 2, "option --nodes='0': expected an integer from 1"),
        ([*JOB, "--nodez", "1", "--", "x"], 2, "unknown option '--nodez', did you mean '--nodes'?"),
        ([*JOB, "--nodez=1", "--", "x"], 2, "unknown option '--nodez=1', did you mean '--nodes'?"),
        ([*JOB, "--log-dir", "logs", "--", "x"], 2, "unknown option '--log-dir'"),
        ([*JOB, "--slots", "2", "--", "x"], 2, "unknown option '--slots'; here it is --devices"),
        ([*JOB, "--time=1:00:00", "--", "x"], 2, "unknown option '--time=1:00:00'; here it is --set slurm.time=..."),
        ([*JOB, "--cmd", "x"], 2, "unknown option '--cmd'; here it is script, and args for its arguments"),
        ([*JOB, "--hepl"], 2, "unknown option '--hepl', did you mean '--help'?"),
        ([*JOB, "--nodes"], 2, "option --nodes: expected a value"),
        ([*JOB, "--nodes", "--", "x"], 2, "option --nodes: expected a value, found '--': write --nodes=-- if that is the value"),
        ([*JOB, "--submit=yes", "--", "x"], 2, "option --submit=yes: expected no value"),
        ([*JOB, "--values", "/nowhere/x.json", "--", "x"], 2, "--values /nowhere/x.json: no such file"),
        ([*JOB, "--set", "shm.enabled=maybe", "--", "x"], 2, "option --set shm.enabled='maybe': expected true or false"),
        ([*JOB, "--set", "args=[1]", "--set", "tolerations", "--", "x"], 2, "option --set 'tolerations': expected KEY=VALUE"),
        ([*JOB, "--env", "PATH", "--", "x"], 2, "option --env 'PATH': expected NAME=VALUE"),
        ([*JOB, "--env", "A=caf\udce9", "--", "x"], 78, "env"),
        ([*JOB], 78, "script='', module='': neither is given; put the program at the end, after --"),
        ([*JOB, "--set", "module=m", "--set", "script=x.py"], 78, "module='m': both are given; leave one out"),
        (["job", "--", "x"], 78, "image.repository: required (--image)"),
        ([*JOB, "--set", "network.hostNetwork=true", "--set", "network.sshPort=22", "--", "x"], 78, "network.sshPort=22"),
        ([*JOB, "--nodes", "2", "--set", "restart.onEviction=restart", "--", "x"], 78, "restart.onEviction"),
        ([*JOB, "--max-restarts", "1", "--", "x"], 78, "restart.maxRestarts"),
        ([*JOB, "--set", "engine=foo", "--", "x"], 2, "option --set engine='foo': the engine is KIND, the word after spec, here job"),
        (["slurm", *JOB[1:], "--set", "engine=foo", "--", "x"], 2, "here slurm; leave it out"),
        (["slurm", *JOB[1:], "--set", "engine=slurm", "--", "x"], 0, ""),
        (["vcjob", *JOB[1:], "--", "x"], 2, "did you mean 'volcano'?"),
        (["slurm", *JOB[1:], "--env", "WORLD_SIZE=8", "--", "x"], 78, "env.WORLD_SIZE: ranklaunch removes it before ranks start"),
        (["pbs", *JOB[1:], "--env", "RANKLAUNCH_HANG=maybe", "--", "x"], 78, "env.RANKLAUNCH_HANG='maybe': expected one of observe"),
        ([*JOB, "--set", "script=/data/my runs/train.py"], 0, ""),
        ([*JOB, "--method", "horovod", "--", "x"], 78, "mode=horovod: expected a method without SSH for engine job; use jobset, volcano"),
        (["acjob", *JOB[1:], "--", "x"], 78, "device.kind=gpu: expected npu with acjob"),
        (["acjob", *JOB[1:], "--device-kind", "npu", "--method", "mpirun", "--", "x"], 78, "mode=mpirun"),
        (["mpijob", *JOB[1:], "--method", "torchrun", "--", "x"], 78, "mode=torchrun: expected mpirun with mpijob"),
        (["trainjob", *JOB[1:], "--device-kind", "npu", "--devices", "0", "--", "x"], 78, "devicesPerNode=0"),
        (["trainjob", *JOB[1:], "--env", "PET_NNODES=2", "--", "x"], 78, "env.PET_NNODES: Kubeflow Trainer's own"),
        (["trainjob", *JOB[1:], "--set", "trainer.runtime=r", "--max-restarts", "1", "--", "x"], 78, "the runtime 'r' sets it"),
        (["trainjob", "--name", "1demo", "--image", "i", "--", "x"], 78, "name='1demo'"),
        (["jobset", "--name", "x" * 50, "--image", "i", "--nodes", "100", "--", "x"], 78, "50 characters, expected at most 45"),
        (["volcano", *JOB[1:], "--set", "scheduling.minAvailable=2", "--", "x"], 78, "scheduling.minAvailable=2: expected at most 1"),
        (["volcano", *JOB[1:], "--set", "device.extra={\"rdma/x\": \"0.5\"}", "--", "x"], 78, "device.extra.rdma/x='0.5': expected a"),
        (["volcano", *JOB[1:], "--set", "nameSuffix=revision", "--", "x"], 78, "nameSuffix"),
        (["volcano", *JOB[1:], "--set", "scheduling.affinity={\"podAffinity\": null}", "--", "x"], 0, ""),
        (["volcano", *JOB[1:], "--set", "scheduling.affinity={\"podAffinity\": [1]}", "--", "x"], 78, "scheduling.affinity.podAffinity"),
        (["modelarts", *JOB[1:], "--", "x"], 78, "modelarts.flavor: required (--flavor), unless modelarts.poolId is set"),
        (["modelarts", *JOB[1:], "--flavor", "f", "--env", "A=" + "x" * 4097, "--", "x"], 78, "env.A: expected at most"),
        (["slurm", "--name", "a b", "--", "x"], 78, "name='a b'"),
        (["slurm", "--name", "a", "--set", "slurm.directives=[\"--x=1\\n#SBATCH --uid=0\"]", "--", "x"], 2, "slurm.directives"),
        (["slurm", "--name", "a", "--deadline-s", "3600", "--max-restarts", "2", "--", "x"], 78, "slurm.time, the limit of each start"),
        (["slurm", "--name", "a", "--deadline-s", "120", "--", "x"], 78, "deadlineSeconds=120: expected more than 120 s"),
        (["slurm", "--name", "a", "--deadline-s", "121", "--", "x"], 0, ""),
        (["slurm", "--name", "a", "--queue", "q", "--", "x"], 78, "scheduling.queue: Slurm's queues are partitions; use slurm.p"),
        (["slurm", "--name", "a", "--service-account", "s", "--", "x"], 78, "serviceAccountName: slurm has no place for it; leave it out"),
    ])  # fmt: skip
def test_what_is_wrong_is_named(argv: list[str], code: int, text: str) -> None:
    found = helpers.call("spec", *argv)
    assert (found.code, bool(found.out)) == (code, code == 0), found.err
    assert text in found.err


def test_secrets_in_env_are_warned_of() -> None:
    found = helpers.call("spec", *JOB, "--env", "WANDB_API_KEY=abc", "--", "x")
    assert found.code == 0
    assert "env.WANDB_API_KEY stands in the specification for all to read" in found.err
    assert "abc" not in found.err


@pytest.mark.parametrize(
    ("options", "args", "told"),
    [
        (("--env", "GITHUB_PAT=hunter2"), (), "env.GITHUB_PAT stands in the specification for all to read"),
        (("--env", "INDEX=https://hunter2@host/"), (), "env.INDEX stands in the specification for all to read"),
        (("--set", 'extraEnv=[{"name": "HF_TOKEN", "value": "hunter2"}]'), (), "extraEnv: HF_TOKEN stands in the specification for all"),
        ((), ("--token", "hunter2", "--lr", "1"), "args hold a secret for all to read (--token '***' --lr 1)"),
        ((), ("-H", "Authorization: Bearer hunter2"), "args hold a secret for all to read"),
    ],
)
def test_secrets_anywhere_are_warned_of(options: tuple[str, ...], args: tuple[str, ...], told: str) -> None:
    found = helpers.call("spec", *JOB, *options, "--", "x", *args)
    assert found.code == 0, found.err
    assert told in found.err
    assert "hunter2" not in found.err


@helpers.for_each(
    [
        ("a.b:5000/c/train:1.4", "it has a tag, and image.tag is 1"),
        ("https://a.b/train", "expected no https://"),
        ("a.b/Team/train", "expected small letters"),
        ("Train", "expected small letters"),
        ("A.b:5000/c_d/e--f", ""),
        ("localhost/train", ""),
    ]
)
def test_what_is_no_name_of_an_image_is_refused(name: str, said: str) -> None:
    """The cluster takes it, and no pod comes up."""
    found = helpers.call("spec", "job", "--name", "llm", "--set", f"image.repository={name}", "--set", "image.tag=1", "--", "x")
    assert (found.code == 0) == (not said), found.err
    assert said in found.err


@helpers.for_each([("modelarts", "modelarts.volumes"), ("slurm", "slurm.setup"), ("job", "a Secret in envFrom")])
def test_a_secret_is_told_a_place_that_the_kind_has(kind: str, place: str) -> None:
    own = {"modelarts": (*JOB[1:], "--flavor", "f"), "slurm": JOB[1:3], "job": JOB[1:]}[kind]
    found = helpers.call("spec", kind, *own, "--env", "HF_TOKEN=hunter2", "--", "x", "--token", "hunter2")
    told = [line for line in found.err.splitlines() if "for all to read" in line]
    assert [place in line for line in told] == [True, True], told


def test_nothing_is_warned_of_where_there_is_no_secret() -> None:
    found = helpers.call("spec", *JOB, "--env", "LR=0.1", "--", "x", "--max_tokens", "7", "-p", "29500")
    assert (found.code, found.err) == (0, "")


def test_help_names_every_option() -> None:
    found = helpers.call("spec", "--help")
    assert found.code == 0
    for option in ("--name X", "--values FILE", "--set KEY=VALUE", "--submit ", "--device-kind X", "[RANKLAUNCH_TEMPLATES]"):
        assert option in found.out
    assert helpers.call("spec", "job", "--nodes", "2", "--help") == found


@pytest.mark.processes
def test_templates_of_ones_own_come_first(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    write(tmp_path / "jobs" / "job.yaml.j2", "name: {{ spec.name | yaml }}\n")
    assert helpers.call("spec", *JOB, "--templates", str(tmp_path), "--", "x").out == 'name: "llm"\n'
    assert helpers.call("spec", *JOB, "--", "x", env={"RANKLAUNCH_TEMPLATES": str(tmp_path)}).out == 'name: "llm"\n'
    write(tmp_path / "jobs" / "job.yaml.j2", "name: {{ spec.name }}\n")
    assert helpers.call("spec", *JOB, "--templates", str(tmp_path), "--", "x").code == 78


@pytest.mark.parametrize(
    ("reference", "parts"),
    [
        ("train", ("train", "", "")),
        ("train:1", ("train", "1", "")),
        ("host:5000/a/train", ("host:5000/a/train", "", "")),
        ("host:5000/a/train:1", ("host:5000/a/train", "1", "")),
        ("a/train@sha256:00", ("a/train", "", "sha256:00")),
        ("a/train:1@sha256:00", ("a/train", "1", "sha256:00")),
    ],
)
def test_parts_of_an_image(reference: str, parts: tuple[str, str, str]) -> None:
    found = parts_of_image(reference)
    assert (found["repository"], found.get("tag", ""), found.get("digest", "")) == parts


# Sending: a stand-in for kubectl and sbatch, which no test can reach a cluster with.


def stand_in(folder: Path, name: str, exit_code: int) -> None:
    path = folder / name
    path.write_text(f'#!/bin/sh\necho "$@" > {folder}/argv\ncat > {folder}/input\necho sent\nexit {exit_code}\n', encoding="utf-8")
    path.chmod(0o755)


def run(folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PATH": f"{folder}:/usr/bin:/bin"}
    command = [sys.executable, "-m", "ranklaunch", "spec", *argv]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("kind", "program", "words"), [("job", "kubectl", "create -f -"), ("slurm", "sbatch", "")], ids=["kubectl", "sbatch"]
)
@pytest.mark.parametrize("exit_code", [0, 7])
def test_what_is_shown_is_sent(tmp_path: Path, kind: str, program: str, words: str, exit_code: int) -> None:
    stand_in(tmp_path, program, exit_code)
    argv = (kind, *JOB[1:], "--env", "A=it's\n$(x)", "--", "train.py")
    shown = helpers.call("spec", *argv).out
    done = run(tmp_path, kind, "--submit", *argv[1:])
    assert done.returncode == exit_code, done.stderr
    assert done.stdout == f"{shown}sent\n"
    assert (tmp_path / "input").read_text(encoding="utf-8") == shown
    assert (tmp_path / "argv").read_text(encoding="utf-8").strip() == words


@pytest.mark.processes
def test_sending_needs_the_program_and_never_credentials(tmp_path: Path) -> None:
    env = {"PATH": str(tmp_path)}
    found = helpers.call("spec", *JOB, "--submit", "--", "x", env=env)
    assert found.code == 69
    assert "kubectl: not found on PATH" in found.err
    found = helpers.call("spec", "modelarts", *JOB[1:], "--flavor", "f", "--submit", "--", "x", env=env)
    assert found.code == 78
    assert "create_training_job" in found.err
    assert json.loads(found.out)["kind"] == "job"


SRUN = """#!{python}
import json, os, sys
with open({path!r}, "w") as file:
    json.dump([sys.argv[1:], dict(os.environ)], file)
sys.exit({code})
"""


@pytest.mark.processes
@pytest.mark.parametrize(("code", "restarts", "requeued"), [(0, "0", False), (78, "0", False), (9, "0", True), (9, "2", False)])
def test_script_for_slurm_as_bash_runs_it(tmp_path: Path, code: int, restarts: str, requeued: bool) -> None:
    """srun and scontrol are stand-ins; what they are called with is the subject."""
    for name, exit_code in (("srun", code), ("scontrol", 0)):
        text = SRUN.format(python=sys.executable, path=str(tmp_path / f"{name}.json"), code=exit_code)
        write(tmp_path / name, text)
        (tmp_path / name).chmod(0o755)
    value = helpers.HOSTILE["both quotes"] + helpers.HOSTILE["dollar"] + helpers.HOSTILE["newline"] + helpers.HOSTILE["unicode"]
    argv = ("slurm", "--name", "llm", "--max-restarts", "2", "--env", f"A={value}", "--", "train.py", value, "")
    script = write(tmp_path / "job.sh", helpers.call("spec", *argv).out)
    told = {"SLURM_RESTART_COUNT": restarts, "SLURM_JOB_ID": "42", "SLURM_NNODES": "3"}
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", **told}
    done = subprocess.run(["bash", script], env=env, capture_output=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (code, b"")
    words, seen = json.loads((tmp_path / "srun.json").read_text(encoding="utf-8"))
    assert words[:2] == ["--ntasks=3", "--ntasks-per-node=1"]
    assert words[words.index("ranklaunch") :] == ["ranklaunch", "run", "--", "train.py", value, ""]
    assert seen["A"] == value
    assert (tmp_path / "scontrol.json").exists() == requeued
    if requeued:
        assert json.loads((tmp_path / "scontrol.json").read_text(encoding="utf-8"))[0] == ["requeue", "42"]


def test_an_mpijob_means_mpirun() -> None:
    done = helpers.call("spec", "mpijob", *JOB[1:], "--nodes", "2", "--", "train.py")
    assert done.code == 0, done.err
    assert '"RANKLAUNCH_METHOD", "value": "mpirun"' in done.out
