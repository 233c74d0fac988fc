"""Specifications for clouds and batch systems other than Slurm, before their own schemas and parsers where these are installed."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import helpers
import pytest
import spec_cases

from ranklaunch.specs.model import BY_SCRIPT, KINDS, OF_CLOUDS

AFTER = ("--", "train.py", "--text", "a 'b' $c")
JOB = ("--name", "llm", "--nodes", "2", "--devices", "8")
LEAST: dict[str, tuple[str, ...]] = {
    "sky": ("--set", "cloud.accelerator=H100"),
    "dstack": ("--image", "r.example.com/t:1", "--set", "cloud.accelerator=H100"),
    "aws_batch": ("--image", "r.example.com/t:1", "--cpu", "96", "--memory", "1000Gi"),
    "azureml": ("--image", "r.example.com/t:1", "--set", "cloud.compute=azureml:gpu"),
    **dict.fromkeys(BY_SCRIPT, ("--cpu", "16")),
}


def is_there(package: str) -> bool:
    parent = package.rpartition(".")[0]
    return (not parent or is_there(parent)) and importlib.util.find_spec(package) is not None


def spec(kind: str, *options: str, job: tuple[str, ...] = JOB, program: tuple[str, ...] = AFTER) -> helpers.Result:
    return helpers.call("spec", kind, *job, *LEAST[kind], *options, *program)


def read(kind: str, text: str) -> dict[str, Any]:
    """JSON, or a line for each key: the name, and its value as JSON, which is YAML too."""
    if kind == "aws_batch":
        return dict(json.loads(text))
    return {name: json.loads(value) for name, _, value in (line.partition(": ") for line in text.splitlines())}


def told(kind: str, body: dict[str, Any]) -> tuple[list[str], dict[str, str]]:
    """What runs on a node, and its environment."""
    if kind == "aws_batch":
        container = body["nodeProperties"]["nodeRangeProperties"][0]["container"]
        return container["command"], {each["name"]: each["value"] for each in container["environment"]}
    line = {"sky": "run", "azureml": "command"}.get(kind)
    words = shlex.split(body[line] if line else body["commands"][-1])
    assert words[0] == "exec"
    env = body.get("envs") or body.get("environment_variables") or body.get("env", {})
    return words[1:], env


@helpers.for_each(OF_CLOUDS)
def test_every_node_starts_one_ranklaunch_with_what_was_given(kind: str) -> None:
    found = spec(kind, "--env", "NOTE=it's $(x)\n`y`")
    words, env = told(kind, read(kind, found.out))
    assert words == ["ranklaunch", "run", *AFTER]
    assert (env["NOTE"], env["RANKLAUNCH_SLOTS"]) == ("it's $(x)\n`y`", "8")


REFUSED = {
    "no kind of GPU": ("sky", ("--set", "cloud.accelerator="), "cloud.accelerator: required with sky"),
    "no size": ("aws_batch", ("--cpu", ""), "resources.cpu: required with aws_batch (--cpu)"),
    "no compute": ("azureml", ("--set", "cloud.compute="), "cloud.compute: required with azureml"),
    "an NPU": ("dstack", ("--device-kind", "npu"), "device.kind=npu: expected gpu or cpu with dstack"),
    "dstack's own text": ("dstack", ("--env", "A=${{ x }}"), "env.A: '${{ x }}': dstack puts values of its own in place of ${{"),
    "Flux's own text": ("flux", ("--env", "A={{id}}"), "env.A: '{{id}}': flux puts values of its own in place of {{"),
    "an array": ("pbs", ("--set", 'batch.directives=["-J 0-9"]'), "'-J 0-9': all jobs of an array would get the same ports"),
    "a secret that is none": ("dstack", ("--set", 'cloud.secrets={"A": "my secret"}'), "expected the name of a secret of dstack's"),
    "a secret in clear": ("sky", ("--set", 'cloud.secrets={"A": "hunter2"}'), "cloud.secrets.A: expected an empty text with sky"),
    "twice a variable": ("sky", ("--env", "A=1", "--set", 'cloud.secrets={"A": ""}'), "cloud.secrets.A: there is a variable of this name"),
    "restarts that are not counted": ("dstack", ("--max-restarts", "2"), "restart.maxRestarts: dstack retries a task for a duration"),
    "restarts of a batch system": (
        "pbs",
        ("--max-restarts", "2"),
        "restart.maxRestarts: the batch system restarts a job only after lost hosts",
    ),
    "a queue of Kubernetes": ("lsf", ("--queue", "gpu"), "scheduling.queue: use batch.queue"),
    "an image on a host": ("flux", ("--image", "t:1"), "image.repository: the program runs on the hosts themselves"),
    "slots twice": ("lsf", ("--set", 'batch.directives=["-n 4"]'), "batch.directives: '-n 4': the script has -n already, by nodes"),
    "a select": ("pbs", ("--set", 'batch.directives=["-l select=4"]'), "'-l select=4': the script has -lselect already, by nodes"),
    "no option": ("flux", ("--set", 'batch.directives=["exclusive"]'), "expected an option in one line"),
    "a directive as a line": ("pbs", ("--set", 'batch.setup=["#PBS -m n"]'), "put it into batch.directives, without #PBS"),
    "parts of a CPU": ("dstack", ("--cpu", "100m"), "resources.cpu='100m': expected an integer of at least 1 with dstack"),
    "no CPU": ("flux", ("--cpu", "0"), "resources.cpu='0': expected an integer of at least 1 with flux"),
    "a partition": ("lsf", ("--partition", "gpuq"), "slurm.partition: use batch.queue"),
    "Slurm's lines": ("flux", ("--set", 'slurm.setup=["true"]'), "slurm.setup: use batch.setup"),
    "no /dev/shm": ("dstack", ("--set", "shm.enabled=false"), "shm.enabled: dstack has no place for it; leave it out"),
    "RDMA": ("sky", ("--set", "network.rdma.count=2"), "network.rdma.count: sky has no place for it; leave it out"),
    "memory of LSF": ("lsf", ("--memory", "1Gi"), "resources.memory: the unit depends on the cluster"),
}


@helpers.for_each(REFUSED)
def test_what_a_place_would_not_run_is_refused(kind: str, options: tuple[str, ...], said: str) -> None:
    found = spec(kind, *options)
    assert (found.code, found.out) == (78, ""), found.err
    assert said in found.err, found.err


OF_KINDS: dict[str, tuple[str, ...]] = {
    "modelarts.poolId=p": ("modelarts",),
    "slurm.qos=q": ("slurm",),
    "cloud.spot=true": OF_CLOUDS,
    'batch.setup=["module load x"]': BY_SCRIPT,
}


@helpers.for_each([(kind, value) for kind in KINDS for value, kinds in OF_KINDS.items() if kind not in kinds])
def test_a_value_of_other_kinds_is_refused(kind: str, value: str) -> None:
    found = helpers.call("spec", kind, *JOB, "--set", value, *AFTER)
    assert (found.code, found.out) == (78, "")
    assert re.search(rf"{value.partition('=')[0]}: ({kind} has no place for it; leave it out|use slurm\.)", found.err), found.err


@pytest.mark.parametrize("memory", ["16", "0", "512m"])
def test_memory_has_a_unit(memory: str) -> None:
    """16 bytes are meant as something else."""
    found = spec("pbs", "--memory", memory)
    assert (found.code, found.out) == (2, "")
    assert f"--memory={memory!r}: expected an amount of memory with its unit, such as 16Gi" in found.err


@helpers.for_each((*OF_CLOUDS, *BY_SCRIPT))
def test_a_secret_in_the_environment_is_warned_of(kind: str) -> None:
    assert "env.HF_TOKEN stands in the specification for all to read" in spec(kind, "--env", "HF_TOKEN=hf_" + "a1B2" * 8).err


@pytest.mark.parametrize(
    ("kind", "method", "names"),
    [
        ("pbs", "spawn", ["MASTER"]), ("lsf", "deepspeed", ["MASTER"]), ("pbs", "torchrun", []), ("lsf", "plain", []),
        ("flux", "spawn", []),
    ],
)  # fmt: skip
def test_jobs_of_one_node_that_share_a_host_have_ports_of_their_own(kind: str, method: str, names: list[str]) -> None:
    """Where their method needs one. torchrun looks for one that is free, and Flux gives a job its host for itself."""
    found = spec(kind, "--method", method, job=("--name", "llm", "--devices", "8"))
    assert re.findall(r"RANKLAUNCH_(\w+)_PORT=", found.out) == names, found.out + found.err


# Scripts, with stand-ins of the systems' programs that start real processes.

STAND_INS = {
    "blaunch": """[[ $1 == -no-shell && $2 == -z ]] || exit 9
        hosts=$3; shift 3
        for host in $hosts; do env -i HOME="$HOME" HOSTNAME=$host LSB_JOBID=$LSB_JOBID "$@" || exit; done""",
    "pbs_tmrsh": """host=$1; shift
        env -i HOME="$HOME" HOSTNAME="$host" PBS_NODENUM=$(($(grep -nx "$host" "$PBS_NODEFILE" | cut -d : -f 1) - 1)) "$@" """,
    "flux": """if [[ $1 == hostlist ]]; then echo gn03,gn04; exit; fi
        [[ "$1 $2 $3 $4 $5" == "run -N 2 -n 2" ]] || exit 9
        shift 9
        for rank in 0 1; do FLUX_TASK_RANK=$rank "$@" || exit; done""",
    "ranklaunch": """printf '%s\\n' "$PWD" "$HOSTNAME ${PBS_NODENUM:-} ${FLUX_TASK_RANK:-}" "${RANKLAUNCH_HOSTS:-}" "$NOTE" \\
        "${RANKLAUNCH_SECRET_FILE##*/}" "$(tr '\\0' '\\n' </proc/$$/environ | grep ^UID=)" "$*" >>"$OUT"."$HOSTNAME" """,
}


def started(kind: str, folder: Path, *options: str, code: int = 0) -> list[str]:
    """What ranklaunch was told on each host."""
    programs = folder / "bin"
    programs.mkdir()
    for name, body in STAND_INS.items():
        body = body.replace('"$OUT"', shlex.quote(str(folder / "out")))
        (programs / name).write_text(f"#!/bin/bash\n{body}\n", encoding="utf-8")
        (programs / name).chmod(0o755)
    (folder / "hosts").write_text("gn03\ngn04\n", encoding="utf-8")
    env = {
        "PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(folder), "PBS_O_WORKDIR": str(folder),
        "PBS_NODEFILE": str(folder / "hosts"), "LSB_DJOB_HOSTFILE": str(folder / "hosts"), "LSB_JOBID": "84213", "PBS_JOBID": "4711.pbs01",
    }  # fmt: skip
    text = spec(kind, "--env", "NOTE=it's $(x) `y`", "--env", "UID=1234567", *options).out
    done = subprocess.run(["/bin/bash"], input=text, env=env, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done.stderr
    return [line for told in sorted(folder.glob("out.*")) for line in told.read_text(encoding="utf-8").splitlines()]


@pytest.mark.processes
@pytest.mark.parametrize("kind", BY_SCRIPT)
def test_a_script_starts_one_ranklaunch_on_each_host(kind: str, tmp_path: Path) -> None:
    lines = started(kind, tmp_path)
    told = [lines[:7], lines[7:]]
    assert len(lines) == 14
    for number, (folder, place, hosts, note, key, uid, program) in enumerate(told):
        assert (folder, note, key, program) == (str(tmp_path), "it's $(x) `y`", "key", f"run {' '.join(AFTER)}")
        assert uid == "UID=1234567"  # which no bash lets anybody change
        assert hosts == {"lsf": "", "pbs": "gn03,gn04", "flux": "gn03,gn04"}[kind]
        assert place.split()[-1] == {"lsf": f"gn0{number + 3}", "pbs": str(number), "flux": str(number)}[kind]
    assert (tmp_path / ".config/ranklaunch/key").stat().st_mode & 0o777 == 0o600


@pytest.mark.processes
@pytest.mark.parametrize("kind", BY_SCRIPT)
def test_what_env_says_counts_more_than_what_setup_has_left(kind: str, tmp_path: Path) -> None:
    setup = json.dumps(["export RANKLAUNCH_SECRET_FILE=/of/setup"])
    given = ("--env", "RANKLAUNCH_SECRET_FILE=/of/values", "--set", f"batch.setup={setup}")
    lines = started(kind, tmp_path, *given)
    assert [lines[4], lines[11]] == ["values", "values"]


@pytest.mark.processes
@pytest.mark.parametrize("kind", ["lsf", "pbs"])
def test_a_script_that_finds_no_hosts_fails(kind: str, tmp_path: Path) -> None:
    assert started(kind, tmp_path, "--set", 'batch.setup=[": >hosts"]', code=78) == []


@pytest.mark.processes
def test_scripts_have_no_faults_that_shellcheck_knows(tmp_path: Path) -> None:
    if not shutil.which("shellcheck"):
        pytest.skip("shellcheck is not installed")
    for kind in BY_SCRIPT:
        (tmp_path / f"{kind}.sh").write_text(spec(kind, "--env", "NOTE=it's $(x)\n`y`", "--working-dir", "/code").out, encoding="utf-8")
    command = ["shellcheck", "--norc", "--exclude=SC2016", *map(str, tmp_path.glob("*.sh"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout


# As qsub(1B) and pbs_resources(7B) of OpenPBS have them, and bsub(1) of LSF, of the options that are used here.
GRAMMARS = {
    "pbs": r"-N [!-~]{1,230}|-l select=[0-9]+(:[a-z_]+=[0-9]+(kb|mb|gb)?)*|-l place=scatter|-l walltime=[0-9]+:[0-5][0-9]:00|-j oe|-r [yn]"
    r"|-[qAo] [!-~]+",
    "lsf": r'-J [!-~]+|-n [0-9]+|-R "span\[ptile=[0-9]+\]"|-gpu "num=[0-9]+"|-W [0-9]+:[0-5][0-9]|-[qPo] [!-~]+',
    "flux": r"--(job-name|queue|bank|output)=[!-~]+|-[Nncg] [0-9]+|--exclusive|-t [0-9]+m",
}


@helpers.for_each(BY_SCRIPT)
def test_directives_are_those_of_the_manual(kind: str) -> None:
    options = ("--deadline-s", "5400", "--set", "batch.queue=gpu", "--set", "batch.account=nlp", "--set", "batch.output=a.out")
    memory = ("--memory", "400Gi") if kind == "pbs" else ()
    lines = re.findall(r"^#(?:BSUB|PBS|flux:) (.*)$", spec(kind, *options, *memory).out, re.MULTILINE)
    assert len(lines) >= 8
    assert [line for line in lines if not re.fullmatch(GRAMMARS[kind], line)] == []


# The products' own judges.


def stored(kind: str) -> list[Path]:
    return spec_cases.accepted(kind)


# As Microsoft's page "CLI (v2) command job YAML schema" has it.
COMMAND_JOB = {
    "$schema": str, "type": str, "display_name": str, "command": str, "code": str, "environment": dict, "compute": str, "resources": dict,
    "distribution": dict, "environment_variables": dict, "limits": dict,
}  # fmt: skip
BELOW = {"resources": {"instance_count", "shm_size"}, "distribution": {"type", "process_count_per_instance"}, "limits": {"timeout"}}


def test_a_job_of_azure_ml_has_keys_of_its_schema_alone() -> None:
    for case in stored("azureml"):
        body = read("azureml", spec_cases.text_of(case))
        assert {name: type(value) for name, value in body.items()}.items() <= COMMAND_JOB.items()
        assert {(name, key) for name, keys in BELOW.items() for key in body[name] if key not in keys} == set()


if is_there("botocore"):

    @pytest.mark.specs
    def test_amazons_own_client_takes_the_job_definition() -> None:
        from botocore.loaders import Loader
        from botocore.model import ServiceModel
        from botocore.validate import ParamValidator

        model = ServiceModel(Loader().load_service_model("batch", "service-2"))
        shape = model.operation_model("RegisterJobDefinition").input_shape
        for case in stored("aws_batch"):
            body = json.loads(spec_cases.text_of(case))
            assert ParamValidator().validate(body, shape).generate_report() == ""
            assert "nodes" in ParamValidator().validate({**body, "nodes": 2}, shape).generate_report()


if is_there("dstack"):  # 200 MB with what it needs: where somebody has it

    @pytest.mark.specs
    def test_dstacks_own_parser_takes_the_task() -> None:
        from dstack._internal.core.models.configurations import parse_run_configuration

        for case in stored("dstack"):
            (data,) = spec_cases.objects_in(spec_cases.text_of(case))
            found = parse_run_configuration(data)
            assert (found.nodes, found.resources.gpu.count.min, found.commands) == (2, 8, data["commands"])


if is_there("azure.ai.ml"):  # 150 MB

    @pytest.mark.specs
    @pytest.mark.filterwarnings("ignore")  # of its own
    def test_azures_own_client_takes_the_job(tmp_path: Path) -> None:
        from azure.ai.ml import load_job

        for case in stored("azureml"):
            (data,) = spec_cases.objects_in(spec_cases.text_of(case))
            (tmp_path / "src").mkdir()
            (tmp_path / "job.yaml").write_text(json.dumps(data), encoding="utf-8")
            job = load_job(tmp_path / "job.yaml")
            assert (job.resources.instance_count, job.distribution.process_count_per_instance, job.command) == (2, 1, data["command"])


if is_there("sky"):  # 700 MB

    @pytest.mark.specs
    @pytest.mark.processes
    def test_skypilots_own_schemas_take_the_task() -> None:
        judge = (  # in a process of its own, for it replaces much of Python's when it is imported
            "import json, jsonschema, sys\nfrom sky.utils import schemas\ndata = json.load(sys.stdin)\n"
            "jsonschema.validate(data, schemas.get_task_schema())\n"
            "jsonschema.validate(data['resources'], schemas.get_resources_schema())\n"
        )
        for case in stored("sky"):
            (data,) = spec_cases.objects_in(spec_cases.text_of(case))
            for given, right in ((data, True), ({**data, "nodes": 2}, False)):
                command = [sys.executable, "-c", judge]
                done = subprocess.run(command, input=json.dumps(given), capture_output=True, text=True, timeout=120, check=False)
                assert (done.returncode == 0) is right, done.stderr
