"""The script that `ranklaunch spec slurm` writes: what it asks Slurm for, what it starts, and what is refused."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import helpers
import pytest

from ranklaunch.api import make_spec
from ranklaunch.errors import ConfigError
from ranklaunch.specs.slurm import seconds_of

JOB = ("slurm", "--name", "llm")
NODES = (*JOB, "--nodes", "2")


def spec(*options: str, program: tuple[str, ...] = ("train.py",), job: tuple[str, ...] = JOB, **values: object) -> helpers.Result:
    """values: those of slurm, or by their path with __ for its dots."""
    given = [f"{name.replace('__', '.') if '__' in name else f'slurm.{name}'}={as_option(value)}" for name, value in values.items()]
    return helpers.call("spec", *job, *options, *(word for each in given for word in ("--set", each)), "--", *program)


def as_option(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def script(*options: str, **how: Any) -> str:
    found = spec(*options, **how)
    assert found.code == 0, found.err
    return str(found.out)


def directives(*options: str, **how: Any) -> list[str]:
    return [line.partition(" ")[2] for line in script(*options, **how).splitlines() if line.startswith("#SBATCH ")]


def started(*options: str, **how: Any) -> list[str]:
    """What srun is called with, up to ranklaunch."""
    line = next(line for line in script(*options, **how).splitlines() if line.startswith('env "${variables[@]}" srun '))
    words = shlex.split(line)
    return words[words.index("--wait=0") + 1 : words.index("ranklaunch")]


def refusals(*options: str, **how: Any) -> str:
    found = spec(*options, **how)
    assert (found.code, found.out) == (78, ""), found.err
    return str(found.err)


# Images and containers


@pytest.mark.parametrize(
    ("image", "apptainer", "pyxis"),
    [
        ("registry.example.com/team/train:1.4", "docker://registry.example.com/team/train:1.4", "registry.example.com#team/train:1.4"),
        ("localhost/train", "docker://localhost/train", "localhost#train"),
        ("team/train@sha256:" + "0" * 64, "docker://team/train@sha256:" + "0" * 64, "team/train@sha256:" + "0" * 64),
        ("registry.example.com#train:1", "docker://registry.example.com#train:1", "registry.example.com#train:1"),
        *((same, same, same) for same in (
            "/sif/train.sif", "./train.sif", "../images/train:2.sqsh", "train.sif", "/images/sandbox", "docker://host:5000/a/train:1",
            "oras://host/a/train:1", "library://team/coll/train:1", "dockerd://train:1",
        )),
    ],
)  # fmt: skip
def test_names_of_images_are_those_that_a_runtime_knows(image: str, apptainer: str, pyxis: str) -> None:
    options = ("--image", image, "--device-kind", "cpu")
    assert started(*options, container="apptainer")[-1] == apptainer
    assert started(*options, container="pyxis")[-2:] == [f"--container-image={pyxis}", "env"]


def test_a_file_has_no_tag() -> None:
    said = refusals(container="apptainer", image__repository="/sif/train.sif", image__tag="1.4")
    assert "image.repository='/sif/train.sif': a file has no image.tag" in said


@pytest.mark.parametrize(("container", "said"), [("none", True), ("apptainer", False)])
def test_an_image_that_nothing_would_use_is_said(container: str, said: bool) -> None:
    found = spec("--image", "train:1", container=container)
    assert found.code == 0
    assert ("image is not used" in found.err) is said


VOLUMES = [{"name": "data", "hostPath": {"path": "/lustre/data/"}}, {"name": "tmp", "hostPath": {"path": "/scratch", "type": "Directory"}}]
MOUNTS = [{"name": "data", "mountPath": "/data", "readOnly": True, "subPath": "set/1"}, {"name": "tmp", "mountPath": "/tmp"}]


def test_folders_of_the_node_are_mounted() -> None:
    options = {"volumes": json.dumps(VOLUMES), "volumeMounts": json.dumps(MOUNTS)}
    words = [word for name, value in options.items() for word in ("--set", f"{name}={value}")]
    words += ["--image", "train:1", "--working-dir", "/work"]
    binds = ["--bind", "/lustre/data/set/1:/data:ro", "--bind", "/scratch:/tmp"]
    assert started(*words, container="apptainer")[1:] == ["apptainer", "exec", "--nv", *binds, "--pwd", "/work", "docker://train:1"]
    mounts = "--container-mounts=/lustre/data/set/1:/data:ro,/scratch:/tmp"
    assert started(*words, container="pyxis")[1:] == ["--container-image=train:1", mounts, "--container-workdir=/work", "env"]
    assert "cd -- " not in script(*words, container="pyxis")  # a folder of the image need not be on the node
    assert "cd -- /work" in script("--working-dir", "/work")


@helpers.for_each(
    [
        ({"emptyDir": {}}, {}, "volumes: 'd': expected a name and a hostPath; no other volume"),
        ({"hostPath": {"path": "/d", "type": "DirectoryOrCreate"}}, {}, "volumes: 'd': slurm does not create it"),
        ({"name": ["d"], "hostPath": {"path": "/d"}}, {}, "volumes: ['d']: expected a name and a hostPath"),
        ({"hostPath": {"path": "/d"}}, {"name": {}, "subPath": 5, "readOnly": "yes"}, "volumeMounts: {}: expected a relative subPath"),
        ({"hostPath": {"path": "/d"}}, {"subPath": "/e"}, "volumeMounts: 'd': expected a relative subPath"),
        ({"hostPath": {"path": "data"}}, {}, "expected a hostPath.path from the root"),
        ({"hostPath": {"path": "/a,b"}}, {}, "expected a hostPath.path from the root without commas"),
        ({"hostPath": {"path": "/d"}}, {"name": "e"}, "volumeMounts: name 'e': no volume of this name"),
        ({"hostPath": {"path": "/d"}}, {"mountPath": "/a:ro"}, "volumeMounts: 'd': expected a mountPath"),
        ({"hostPath": {"path": "/d"}}, {"subPathExpr": "$(X)"}, "volumeMounts: 'd': subPathExpr: slurm has no such option of a mount"),
    ]
)
def test_what_cannot_be_mounted_is_refused(volume: dict[str, Any], mount: dict[str, Any], said: str) -> None:
    values = {"volumes": [{"name": "d", **volume}], "volumeMounts": [{"name": "d", "mountPath": "/d", **mount}]}
    words = [word for name, value in values.items() for word in ("--set", f"{name}={json.dumps(value)}")]
    assert said in refusals("--image", "train:1", *words, container="apptainer")
    assert "volumes: without slurm.container the program sees the node's own folders" in refusals(*words)


def test_logs_that_go_with_the_container_are_said() -> None:
    words = ("--image", "train:1")
    assert "logs and verdict are lost with the container" in spec(*words, container="pyxis").err
    assert spec(*words, "--env", "RANKLAUNCH_LOG_DIR=/logs", container="pyxis").err == ""
    assert spec(*words, container="apptainer").err == ""


# Lines and options of the user's


SHOWN = "export -p | grep -E 'RANKLAUNCH_|MINE'"


def run_script(
    folder: Path, *options: str, env: dict[str, str] | None = None, shown: str = SHOWN, **how: Any
) -> subprocess.CompletedProcess[str]:
    """By bash, with an srun that shows its environment."""
    (folder / "srun").write_text(f'#!/bin/bash\n{shown}\necho "with $*"\n', encoding="utf-8")
    (folder / "srun").chmod(0o755)
    text = script(*options, **how)
    around = {"PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(folder), "SLURM_NNODES": "2", "SLURM_JOB_ID": "70001", **(env or {})}
    return subprocess.run(["bash", "-s"], input=text, env=around, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.processes
def test_setup_runs_before_srun_and_may_use_what_is_not_set(tmp_path: Path) -> None:
    (tmp_path / "activate").write_text('export MINE="$NOT_SET of mine"\nfalse\n', encoding="utf-8")
    done = run_script(tmp_path, setup=["source ./activate  # café", "if true; then", "    export MINE2=$MINE", "fi"])
    assert (done.returncode, done.stderr) == (0, "")
    assert 'declare -x MINE2=" of mine"' in done.stdout
    assert "with --ntasks=2" in done.stdout
    done = run_script(tmp_path, setup=["false || exit 78"])
    assert (done.returncode, done.stdout) == (78, "")


@pytest.mark.parametrize(("line", "said"), [("a\nb", "expected one line each"), (" #SBATCH --uid=0", "put it into slurm.directives")])
def test_a_line_of_setup_is_a_line_of_the_script(line: str, said: str) -> None:
    assert f"slurm.setup: {line!r}: {said}" in refusals(setup=[line])


def test_options_of_srun() -> None:
    assert started(srunOptions=["--mpi=pmix", "--label"]) == ["--cpu-bind=none", "--mpi=pmix", "--label"]
    assert started(srunOptions=["--cpu-bind=cores"]) == ["--cpu-bind=cores"]
    assert started(directives=["--export=NONE"])[-1] == "--export=ALL"


@pytest.mark.parametrize("option", ["--ntasks=8", "--nodes=1", "--wait=60", "--kill-on-bad-exit=1", "--container-image=x"])
def test_options_of_srun_that_the_script_has_are_refused(option: str) -> None:
    assert f"slurm.srunOptions: {option!r}: the script sets it itself (" in refusals(srunOptions=[option])


def test_options_of_srun_that_would_hide_what_the_script_sets_are_refused() -> None:
    assert "expected --export=ALL" in refusals(srunOptions=["--export=NONE"])
    assert "--label is given 2 times" in refusals(srunOptions=["--label", "--label"])


# Ports


@pytest.mark.processes
@pytest.mark.parametrize(
    ("options", "ports"),
    [
        (NODES, {"MASTER": 24004, "MUSTER": 24005}),
        ((*NODES, "--method", "mpirun"), {"MASTER": 24004, "MUSTER": 24005, "SSHD": 24006}),
        ((*NODES, "--set", "network.masterPort=5000"), {"MASTER": 5000, "MUSTER": 24005}),
        ((*NODES, "--env", "MSRUN_MASTER_PORT=5000"), {"MUSTER": 24005}),
        ((*JOB, "--method", "spawn"), {"MASTER": 24004}),
        ((*JOB, "--method", "torchrun"), {}),  # it chooses one itself
    ],
)
def test_each_job_has_ports_of_its_own(options: tuple[str, ...], ports: dict[str, int], tmp_path: Path) -> None:
    done = run_script(tmp_path, job=options)
    assert done.returncode == 0, done.stderr
    names = {f"RANKLAUNCH_{name}_PORT": str(port) for name, port in ports.items()}
    found = dict(line.removeprefix("declare -x ").replace('"', "").split("=", 1) for line in done.stdout.splitlines() if "_PORT=" in line)
    assert {name: text for name, text in found.items() if name.startswith("RANKLAUNCH_")} == names


@pytest.mark.processes
def test_a_port_of_the_users_stays(tmp_path: Path) -> None:
    done = run_script(tmp_path, job=NODES, env={"RANKLAUNCH_MASTER_PORT": "5000"})
    assert 'declare -x RANKLAUNCH_MASTER_PORT="5000"' in done.stdout


@pytest.mark.processes
def test_the_program_finds_what_env_says_whatever_bash_and_the_script_call_their_own(tmp_path: Path) -> None:
    given = {"key": "mine", "code": "3", "UID": "1234567", "RANDOM": "7", "SECONDS": "8", "MINE": "it's\n$(x)"}
    options = [word for name, value in given.items() for word in ("--env", f"{name}={value}")]
    done = run_script(tmp_path, *options, job=NODES, shown="tr '\\0' '\\n' </proc/$$/environ")
    assert (done.returncode, done.stderr) == (0, "")
    assert {f"{name}={value}" for name, value in given.items() if name != "MINE"} <= set(done.stdout.splitlines())
    assert "MINE=it's\n$(x)\n" in done.stdout


# What Slurm is asked for


@pytest.mark.parametrize(
    ("seconds", "written"), [("7200", "02:00:00"), ("3601", "01:01:00"), ("90000", "1-01:00:00"), ("360000", "4-04:00:00")]
)
def test_a_time_limit_is_written_as_admins_do(seconds: str, written: str) -> None:
    assert directives("--deadline-s", seconds)[3:6] == ["--gpus-per-node=1", f"--time={written}", "--signal=TERM@60"]


@pytest.mark.parametrize(
    ("memory", "written"), [("400Gi", "400G"), ("1Ti", "1024G"), ("1500Mi", "1500M"), ("400G", "381470M"), ("0.5Gi", "512M")]
)
def test_memory_is_written_as_admins_do(memory: str, written: str) -> None:
    assert f"--mem={written}" in directives("--memory", memory)


@helpers.for_each([
        ("90", 5400), ("90:30", 5430), ("1:30:00", 5400), ("2-12", 216000), ("2-12:30", 217800), ("2-12:30:15", 217815), ("0-1", 3600),
        ("two", None), ("1:2:3:4", None), ("", None),
    ])  # fmt: skip
def test_times_of_sbatch(time: str, seconds: int | None) -> None:
    assert seconds_of(time) == seconds


def test_time_signal_and_requeue_go_together() -> None:
    found = directives("--max-restarts", "3", time="12:00:00", output="logs/%x-%j.out", lifecycle__gracePeriodSeconds=120)
    limits = ["--time=12:00:00", "--signal=TERM@120", "--requeue", "--output=logs/%x-%j.out", "--open-mode=append"]
    assert found[-len(limits) :] == limits
    assert directives(directives=["--time=12:00:00"])[-3:] == ["--signal=TERM@60", "--no-requeue", "--time=12:00:00"]
    assert not any("--signal=TERM" in each for each in directives(directives=["--time=12:00:00", "--signal=USR1@300"]))
    assert not any("--signal" in each for each in directives(time="UNLIMITED"))


@pytest.mark.parametrize(
    ("options", "values", "said"),
    [
        (("--max-restarts", "1", "--deadline-s", "3600"), {}, "with restart.maxRestarts set slurm.time, the limit of each start"),
        (("--deadline-s", "3600"), {"time": "60"}, "slurm.time='60': expected one of the two"),
        ((), {"time": "2h"}, "slurm.time='2h': expected minutes, hours:minutes:seconds or days-hours"),
        ((), {"time": "2"}, "slurm.time=2: expected more than 120 seconds"),
        ((), {"directives": ["--time=2"]}, "slurm.directives: --time=2: expected more than 120 seconds"),
        ((), {"output": "a b"}, "slurm.output='a b': expected a path without spaces"),
    ],
)
def test_times_that_cannot_be_are_refused(options: tuple[str, ...], values: dict[str, Any], said: str) -> None:
    assert said in refusals(*options, **values)


@helpers.for_each(
    [
        ((), "--requeue", "--no-requeue already, by restart.maxRestarts"),
        (("--max-restarts", "1"), "--no-requeue", "--requeue already, by restart.maxRestarts"),
        ((), "--gpus-per-node=4", "--gpus-per-node already, by devicesPerNode"),
        ((), "--gres=gpu:a100:4", "--gpus-per-node already, by devicesPerNode"),
        (("--device-kind", "npu"), "--gres=nvme:1", "--gres already, by devicesPerNode"),
        ((), "--ntasks=4", "--ntasks-per-node already, by devicesPerNode"),
        ((), "--nodes=4", "--nodes already, by nodes"),
        (("--max-restarts", "1"), "--requeue=no", "--requeue already, by restart.maxRestarts (0: --no-requeue)"),
        ((), "--gres=gpu:8", "--gpus-per-node already, by devicesPerNode, unless slurm.devices is none"),
        (("--cpu", "8"), "--cpus-per-gpu=4", "--cpus-per-task already, by resources.cpu"),
        (("--memory", "8Gi"), "--mem-per-cpu=4G", "--mem already, by resources.memory"),
        (("--partition", "a"), "--partition=b", "--partition already, by slurm.partition"),
        (("--deadline-s", "3600"), "--time=60", "--time already, by slurm.time or lifecycle.deadlineSeconds"),
    ]
)
def test_directives_that_the_script_has_are_refused(options: tuple[str, ...], directive: str, own: str) -> None:
    assert f"slurm.directives: {directive!r}: the script has {own}" in refusals(*options, directives=[directive])


@helpers.for_each(
    [
        ((), "--exclude", "expected a value, as in --exclude=VALUE"),
        ((), "--open-mode", "expected a value, as in --open-mode=VALUE"),
        (("--working-dir", "/work"), "--chdir=/home", "the script changes to workingDir already"),
        ((), "--wrap=hostname", "not for a script"),
    ]
)
def test_directives_without_effect_are_refused(options: tuple[str, ...], directive: str, why: str) -> None:
    assert f"slurm.directives: {directive!r}: {why}" in refusals(*options, directives=[directive])


@helpers.for_each(
    [
        ({"time": "12"}, "slurm.time=12: 12 minutes to sbatch; hours are 12:00:00"),
        ({"time": "12:00"}, "slurm.time=12:00: 12 minutes to sbatch; hours are 12:00:00"),
        ({"directives": ["--time=8:30"]}, "slurm.directives: --time=8:30: 8 minutes"),
        ({"time": "90"}, ""),
        ({"time": "0-8"}, ""),
        ({"resources__memory": "400G"}, "resources.memory=400G: 381470M to Slurm, whose units are powers of two; 400Gi is 400G there"),
        ({"resources__memory": "400Gi"}, ""),
        ({"restart__maxRestarts": "1", "directives": ["--open-mode=truncate"]}, "each start empties the output"),
        ({"directives": ["--open-mode=truncate"]}, ""),
        ({"directives": ["--signal=USR1@120"]}, "ranks that do not catch the signal die of it; set save.signal"),
        ({"directives": ["--signal=USR1@120"], "save__signal": "USR1"}, ""),
        ({"devices": "none"}, "slurm.devices=none: the script asks for no devices"),
        ({"devices": "none", "directives": ["--gres=gpu:a100:8"]}, ""),
        ({"network__masterPort": "4000", "network__musterPort": "4000"}, "expected different ports, found 4000, 4000"),
        ({"network__masterPort": "4000", "network__musterPort": "4001"}, ""),
    ]
)
def test_values_in_another_sense_are_said(values: dict[str, Any], said: str) -> None:
    err = spec(**values).err
    assert said in err
    assert bool(err) is bool(said), err


@helpers.for_each(
    [
        ("slurm.array=0-9", 'here it is slurm.directives=["--array=..."]'),
        ("slurm.exclusive=true", 'here it is slurm.directives=["--exclusive"]'),
        ("slurm.mailType=END", 'here it is slurm.directives=["--mail-type=..."]'),
        ("slurm.requeue=false", "here it is restart.maxRestarts"),
        ("slurm.gres=gpu:8", 'here it is slurm.devices=none and slurm.directives=["--gres=..."]'),
        ("slurm.partitoin=a", "did you mean 'slurm.partition'?"),
    ]
)
def test_keys_that_are_options_of_sbatch_lead_to_ours(given: str, hint: str) -> None:
    name, _, value = given.partition("=")
    assert hint in helpers.call("spec", *JOB, "--set", given, "--", "train.py").err
    with pytest.raises(ConfigError, match=re.escape(hint)):
        make_spec("slurm", {"name": "llm", "script": "train.py", "slurm": {name.partition(".")[2]: value}})


@helpers.for_each(
    [
        ("-N", "; here it is --nodes"),
        ("-t", "; here it is --set slurm.time=..."),
        ("--array=0-9", "; here it is --set 'slurm.directives=[\"--array=...\"]'"),
        ("--requeue", "; here it is --max-restarts"),
        ("--gres=gpu:8", "; here it is --set slurm.devices=none and --set 'slurm.directives=[\"--gres=...\"]'"),
        ("--bogus", ""),
    ]
)
def test_options_of_sbatch_lead_to_ours(option: str, hint: str) -> None:
    lines = helpers.call("spec", *JOB, option, "8", "--", "train.py").err.splitlines()
    assert lines[0].endswith(f"unknown option {option!r}{hint}")
    assert helpers.call("spec", "job", "-N", "8").err.splitlines()[0].endswith("unknown option '-N'")


def test_directives_that_contradict_each_other_are_refused() -> None:
    said = refusals(directives=["--mem=4G", "--exclusive", "--mem-per-gpu=8G"])
    assert "slurm.directives: '--mem-per-gpu=8G': --mem is given before" in said


@pytest.mark.parametrize(
    ("options", "directive"), [((), "--gres=nvme:1"), (("--set", "slurm.devices=none"), "--gpus-per-node=a100:1"), ((), "--mem=0")]
)
def test_directives_beside_those_of_the_script(options: tuple[str, ...], directive: str) -> None:
    assert directives(*options, directives=[directive])[-1] == directive


def test_other_resources_beside_gpus_by_their_kind() -> None:
    both = ["--gres=nvme:1", "--gpus-per-node=a100:1"]
    assert directives("--set", "slurm.devices=none", directives=both)[-2:] == both


@pytest.mark.parametrize(
    ("words", "warned"),
    [
        (("--devices", "8"), True),
        (("--devices", "8", "--set", 'slurm.directives=["--comment=--exclusive"]'), True),
        (("--devices", "8", "--cpu", "32"), False),
        (("--devices", "8", "--set", 'slurm.directives=["--exclusive"]'), False),
        (("--devices", "8", "--set", 'slurm.directives=["--comment=a", "--cpus-per-gpu=4"]'), False),
        (("--devices", "1"), False),
    ],
)
def test_ranks_that_would_share_one_cpu_are_warned_of(words: tuple[str, ...], warned: bool) -> None:
    lines = spec(*words).err.splitlines()
    assert [("resources.cpu is not set" in line, "all 8 ranks" in line) for line in lines] == [(True, True)] * warned


@pytest.mark.parametrize("signal", ["B:TERM@60", "B:USR1@60"])
def test_a_signal_that_the_script_alone_would_get_is_said(signal: str) -> None:
    """With pyxis the script cannot ask ranklaunch."""
    options = {"container": "pyxis"} if "USR1" in signal else {}
    found = spec("--image", "train:1", directives=[f"--signal={signal}"], **options)
    assert "--signal=B: reaches only the script" in found.err
    assert "ranklaunch save" not in found.out


# Saving before the time limit


def saving(text: str) -> list[str]:
    """Return the lines of a script that wait for a warning and answer it."""
    return [line.strip() for line in text.splitlines() if line.strip().startswith(("trap ", "ranklaunch save", "apptainer"))][:2]


@helpers.for_each(
    [
        ({"saveBefore": "300"}, "USR1", 290),
        ({"saveBefore": "12"}, "USR1", 6),
        ({"directives": ["--signal=B:USR1@120"]}, "USR1", 110),
        ({"directives": ["--signal=B:SIGUSR2"]}, "USR2", 50),
        ({"directives": ["--signal=RB:USR1@2"]}, "USR1", 1),
    ]
)
def test_ranks_save_before_the_limit(values: dict[str, Any], signal: str, deadline: int) -> None:
    found = spec("--max-restarts", "1", time="12:00:00", save__signal="USR1", **values)
    save = f'ranklaunch save "$RANKLAUNCH_LOG_DIR" --deadline {deadline} ||'
    assert (found.code, saving(found.out)) == (0, [f"trap is_warned=1 {signal}", save])
    assert ["seconds are little for a save" in line for line in found.err.splitlines()] == [True] * (deadline < 20)
    asked = [line.partition("=")[2] for line in found.out.splitlines() if line.startswith("#SBATCH --signal=")]
    wanted = values.get("directives", [f"--signal=B:USR1@{values.get('saveBefore')}"])
    assert asked == [wanted[0].partition("=")[2]]


def test_a_container_is_asked_in_the_container() -> None:
    options = ("--image", "/sif/it's.sif", "--max-restarts", "1", "--env", "RANKLAUNCH_LOG_DIR=/logs/it's")
    text = script(*options, container="apptainer", saveBefore="300")
    assert "apptainer exec --nv '/sif/it'\"'\"'s.sif' ranklaunch save " in text
    assert "export RANKLAUNCH_LOG_DIR='/logs/it'\"'\"'s'\n" in text


@helpers.for_each(
    [
        ({"saveBefore": "300", "directives": ["--signal=TERM@60"]}, "the script has --signal already, by slurm.saveBefore"),
        ({"saveBefore": "90", "time": "2"}, "slurm.time=2: expected more than 150 seconds, for Slurm warns up to 60 seconds"),
        ({"saveBefore": "65536"}, "slurm.saveBefore='65536': expected an integer"),
        ({"saveBefore": "5m"}, "slurm.saveBefore"),
        ({"saveBefore": "300", "container": "pyxis", "image__repository": "a"}, "slurm.container=pyxis the script cannot ask"),
    ]
)  # fmt: skip
def test_warnings_that_cannot_be_are_refused(values: dict[str, Any], said: str) -> None:
    found = spec(**values)
    assert found.code in (2, 78)
    assert said in found.err


def test_the_page_the_catalogue_and_the_spec_name_the_same_signal() -> None:
    """The script of the page, and the remedy after a time limit, are directives that the script answers."""
    texts = [(helpers.ROOT / path).read_text(encoding="utf-8") for path in ("docs/slurm.md", "catalogue/slurm.toml")]
    for text in texts:
        (signal,) = set(re.findall(r"--signal=B:USR1@[0-9]+", text))
        assert saving(script("--max-restarts", "1", directives=[signal]))[0] == "trap is_warned=1 USR1"
        assert "slurm.saveBefore" in text


def test_a_save_without_a_requeue_is_said() -> None:
    assert "restart.maxRestarts is 0: after the save before the time limit the job ends" in spec(saveBefore="300").err


@helpers.for_each(
    [
        ({"saveBefore": "300"}, True, True),
        ({"saveBefore": "300", "time": "infinite"}, True, True),
        ({"directives": ["--signal=B:USR1@300", "--time=60"]}, True, False),
        ({"saveBefore": "300", "time": "60", "setup": ["export RANKLAUNCH_SAVE_FILE=$PWD/save"]}, False, False),
        ({"saveBefore": "300", "save__file": "/work/save"}, False, True),
        ({"saveBefore": "300", "save__signal": "USR1", "time": "60"}, False, False),
        ({"time": "60"}, False, False),
    ]
)
def test_a_save_that_nobody_is_asked_for_or_without_a_limit_is_said(values: dict[str, Any], unasked: bool, unlimited: bool) -> None:
    err = spec("--max-restarts", "1", **values).err
    assert ("ranks are only stopped, and not asked to save before" in err, "no time limit is set" in err) == (unasked, unlimited), err


@helpers.for_each(
    [
        ({"time": "60"}, ["55"]),
        ({"directives": ["--time=60"]}, ["55"]),
        ({"time": "60", "lifecycle__gracePeriodSeconds": "120"}, ["115"]),
        ({"lifecycle__deadlineSeconds": "3600"}, ["55"]),
        ({}, []),
        ({"time": "unlimited"}, []),
        ({"time": "60", "directives": ["--signal=USR2@90"]}, []),
        ({"time": "60", "saveBefore": "300"}, []),
    ]
)
def test_ranks_have_the_grace_that_slurm_is_asked_for(values: dict[str, Any], grace: list[str]) -> None:
    assert re.findall(r"^    RANKLAUNCH_GRACE_S=(.*)$", script(**values), re.MULTILINE) == grace


def test_an_expedited_requeue_stands_in_place_of_the_scripts_own() -> None:
    found = spec("--max-restarts", "1", directives=["--requeue=expedite"])
    assert found.code == 0
    assert [line for line in found.out.splitlines() if "SBATCH --requeue" in line] == ["#SBATCH --requeue=expedite"]
    assert "--requeue=expedite needs Slurm 25.11 or newer" in found.err
    assert "the script has --no-requeue already" in refusals(directives=["--requeue=expedite"])


# What the script does with the verdict

REASON = 'rank 0 on node 0 (n1) exited with code 75: é "q" \\ $x `y` ' + "long " * 100
SUSPECT = {"host": "n1", "node": 0, "why": "no"}


def ended(
    folder: Path, *options: str, code: int = 75, refused: str = "none", verdict: Any = None, array: Any = None, **how: Any
) -> tuple[int, list[str]]:
    """Return the exit code of a script whose job has left this verdict, and what scontrol was called with. refused: a subcommand of
    scontrol that fails."""
    said = {"culprit": {"host": "n9", "reason": "other"}, "reason": REASON, "suspect_host": SUSPECT} if verdict is None else verdict
    logs = folder / "ranklaunch-logs" / "job_70001.0" / "node_0" / "attempt_2"
    logs.mkdir(parents=True, exist_ok=True)
    (logs / "verdict.json").write_text(json.dumps(said, indent=1), encoding="utf-8")  # as ranklaunch.supervise.record writes it
    shown = "JobId=70001 JobName=llm ReqNodeList=(null) ExcNodeList=n7,n[2-3] NodeList=n1 Comment=a ExcNodeList=n8"
    (folder / "scontrol").write_text(
        f"#!/bin/bash\nprintf '%s\\0' \"$@\" $'\\n' >>{folder}/called\n[[ $1 != --oneliner ]] || echo '{shown}'\n[[ $* != *{refused}* ]]\n"
    )
    (folder / "scontrol").chmod(0o755)
    (folder / "called").write_text("")
    env = {"SLURM_RESTART_COUNT": "1", "LC_ALL": "C.UTF-8", **(array or {})}
    done = run_script(folder, "--max-restarts", "2", *options, shown=f"exit {code}", env=env, job=NODES, **how)
    calls = (folder / "called").read_text(encoding="utf-8").split("\0\n\0")
    return done.returncode, [
        each for call in calls[:-1] for each in call.split("\0") if "=" in each or each == "requeue" or each.startswith("70001")
    ]


REQUEUED = ["70001", "requeue", "70001", "JobId=70001", "ExcNodeList=n7,n[2-3],n1"]


@pytest.mark.processes
def test_the_verdict_becomes_the_jobs_comment_and_its_host_is_left_out(tmp_path: Path) -> None:
    comment = ["JobId=70001", f"Comment={REASON[:200]}"]
    assert ended(tmp_path) == (75, [*comment, *REQUEUED])
    assert ended(tmp_path, refused="Comment") == (75, [*comment, *REQUEUED])
    assert ended(tmp_path, refused="ExcNodeList") == (75, [*comment, *REQUEUED])
    assert ended(tmp_path, refused="requeue") == (75, [*comment, *REQUEUED[:3]])
    assert ended(tmp_path, code=78) == (78, comment)
    assert ended(tmp_path, code=0) == (0, [])
    assert ended(tmp_path, directives=["--comment=mine"]) == (75, REQUEUED)
    assert ended(tmp_path, verdict={"reason": "no"}) == (75, ["JobId=70001", "Comment=no", *REQUEUED[:3]])
    array = {"SLURM_ARRAY_JOB_ID": "70001", "SLURM_ARRAY_TASK_ID": "3"}
    of_task = [each.replace("70001", "70001_3") for each in (*comment, *REQUEUED)]
    assert ended(tmp_path, array=array) == (75, of_task)
    hostile = {"reason": "no", "suspect_host": {"host": "n1 $(x)", "node": 0, "why": "no"}}
    assert ended(tmp_path, verdict=hostile) == (75, ["JobId=70001", "Comment=no", *REQUEUED[:3]])


def page_script() -> str:
    """Return the script of docs/slurm.md that saves before the time limit."""
    text = (helpers.ROOT / "docs" / "slurm.md").read_text(encoding="utf-8")
    block = text.partition("The same in your own script. ")[2].partition(":\n\n")[2]
    return "".join(line[4:] + "\n" for line in itertools.takewhile(lambda line: not line or line[0] == " ", block.splitlines()))


PAGE = """\
#!/bin/bash
echo "$(basename "$0") $*" | sed 's/^srun .*/srun/' >>called
case $0 in
    */srun) ((WARNED)) && kill -USR1 $PPID && sleep 0.5; exit "$CODE" ;;
    */ranklaunch) exit "$SAVE_CODE" ;;
esac
"""


@pytest.mark.processes
@pytest.mark.parametrize(
    ("env", "called"),
    [
        ({"WARNED": "1", "CODE": "143"}, ["srun", "ranklaunch save ranklaunch-logs/job_70001.0 --deadline 290", "scontrol requeue 70001"]),
        ({"WARNED": "1", "CODE": "0"}, ["srun", "ranklaunch save ranklaunch-logs/job_70001.0 --deadline 290"]),
        ({"CODE": "1"}, ["srun", "scontrol requeue 70001"]),
        ({"CODE": "78"}, ["srun"]),
        ({"CODE": "1", "SLURM_RESTART_COUNT": "10"}, ["srun"]),
        (
            {"WARNED": "1", "CODE": "143", "SAVE_CODE": "75", "SLURM_RESTART_COUNT": "10"},
            ["srun", "ranklaunch save ranklaunch-logs/job_70001.0 --deadline 290", "scancel --signal=TERM 70001"],
        ),
    ],
)
def test_the_script_of_the_page_does_as_that_of_spec(env: dict[str, str], called: list[str], tmp_path: Path) -> None:
    values = {"saveBefore": "300", "save__signal": "USR1", "time": "12:00:00"}
    written = script("--max-restarts", "10", "--env", "RANKLAUNCH_LOG_DIR=ranklaunch-logs/job_70001.0", "--cpu", "4", **values)
    for name in ("srun", "ranklaunch", "scancel", "scontrol"):
        (tmp_path / name).write_text(PAGE, encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    around = {"WARNED": "0", "SAVE_CODE": "0", "PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "70001", "SLURM_NNODES": "1"}
    for text in (page_script(), written):
        (tmp_path / "called").write_text("", encoding="utf-8")
        words = ["bash", "-s"]
        done = subprocess.run(
            words, input=text, env={**around, **env}, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )
        lines = (tmp_path / "called").read_text(encoding="utf-8").splitlines()
        assert (done.returncode, [line for line in lines if "--oneliner" not in line]) == (int(env["CODE"]), called), done.stderr


@pytest.mark.processes
def test_scripts_have_no_faults_that_shellcheck_knows(tmp_path: Path) -> None:
    if not shutil.which("shellcheck"):
        pytest.skip("shellcheck is not installed")
    text = script("--max-restarts", "2", "--working-dir", "/work", job=NODES, time="60", setup=["module load cuda"])
    (tmp_path / "job.sh").write_text(text, encoding="utf-8")
    saves = script("--max-restarts", "2", saveBefore="300")
    (tmp_path / "saves.sh").write_text(saves, encoding="utf-8")
    files = [str(tmp_path / name) for name in ("job.sh", "saves.sh")]
    done = subprocess.run(["shellcheck", *files], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == ""
