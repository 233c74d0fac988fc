"""One `accelerate launch` per node (accelerate 1.15), which starts the ranks as torchrun does, inside its own process."""

from __future__ import annotations

import json
import re

from ranklaunch import redact
from ranklaunch.adapters.launchers import torchrun
from ranklaunch.adapters.launchers.shared import contradictions, words
from ranklaunch.adapters.launchers.shared.base import (
    MASTER_PORT,
    address,
    attempt_dir,
    launcher_process,
    limits,
    master_waits,
    meeting_host,
)
from ranklaunch.files import absolute, join
from ranklaunch.plan.model import File, Plan
from ranklaunch.read import parse
from ranklaunch.read.job import Job
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import METHOD
from ranklaunch.render.templates import Templates

NAME = "accelerate"

EXTRA: Variable[tuple[str, ...]] = Variable(
    "extra_accelerate_params", ("RANKLAUNCH_EXTRA_ACCELERATE_PARAMS",), parse.words, (),
    "further options of accelerate launch, such as --use_fsdp; the last of two equal options wins",
)  # fmt: skip
MIXED_PRECISION = Variable(
    "mixed_precision", ("RANKLAUNCH_MIXED_PRECISION",), parse.one_of("no", "fp16", "bf16", "fp8"), "",
    "precision in which the model computes: no, fp16, bf16 or fp8", option="--mixed-precision",
    default_text="what the program says, else no",
)  # fmt: skip

VARIABLES: tuple[Variable[object], ...] = (MASTER_PORT, EXTRA, MIXED_PRECISION, torchrun.SHUTDOWN)

explain = torchrun.explain

_MEETING = ("--main_process_ip", "--main_process_port")
# With one of these, the type in a configuration is not looked at.
_WAYS = ("--multi_gpu", "--tpu", "--tpu_cluster", "--use_deepspeed", "--use_fsdp", "--use_megatron_lm")
_ONE_PROCESS = ("NO", "MULTI_CPU")
# The one way by which DeepSpeed's ranks are those of the node; one that its hostfile has too is for those who know it.
_OWN_NODE = re.compile(r"""deepspeed_multinode_launcher["']?[ \t]*:[ \t]*["']?(?:standard|nossh)\b""")
_MOST_CONFIG = 1024 * 1024
_DEEPSPEED_LAUNCHER = "--deepspeed_multinode_launcher"


def plan(job: Job, reader: Reader, templates: Templates) -> Plan:
    extra = reader.get(EXTRA)
    options = words.options(extra, words.with_underscores)
    _lint(job, reader, options)
    contradictions.refuse(reader, EXTRA, extra, _counts(job), words.with_underscores)
    for path in words.values(extra, "--config_file", words.with_underscores):
        _refuse_config(job, reader, path, options)
    host, port = address(meeting_host(job, reader)), reader.get(MASTER_PORT)
    config = File(join(attempt_dir(job), "accelerate.json"), _config(job, options, host, port))
    outputs = torchrun.rank_outputs(job, reader, templates, NAME) if torchrun.knows_its_ranks(job, extra) else None
    argv = templates.command(
        "accelerate/command.j2",
        job=torchrun.with_dollars_doubled(job),
        main_process_ip=host,
        main_process_port=port,
        config_file=config.path,
        mixed_precision=reader.get(MIXED_PRECISION),
        log_dir=outputs.folder if outputs else "",
        extra=extra,
    )
    env = {"TORCHELASTIC_ERROR_FILE": join(attempt_dir(job), "accelerate_error.json")}
    if outputs:
        env["PET_REDIRECTS"] = "3"  # which accelerate has no option for, and leaves to torch
    if job.accelerator == "cpu":
        env["ACCELERATE_USE_CPU"] = "true"  # without it, and without a GPU, each rank believes that it is alone
    found = Plan(
        job=job,
        method=NAME,
        why="",
        processes=(launcher_process(job, reader, NAME, argv, env, conduct=torchrun.conduct(job, options)),),
        limits=limits(reader),
        files=(config,),
        waits=master_waits(job, reader),
        outputs=outputs,
    )
    return torchrun.with_grace(found, reader, options)


def _config(job: Job, options: set[str], host: str, port: int) -> str:
    """Its configuration: without a file of ours, accelerate takes the one that someone has left in the home folder.

    MULTI_GPU is what makes it start ranks at all, on CPUs and for one rank too. As an option, --multi_gpu would keep the user from
    --use_fsdp and --use_deepspeed; here it gives way to them. Not in it: the mixed precision, which DeepSpeed refuses from here.
    """
    values: dict[str, object] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "MULTI_NPU" if job.accelerator == "npu" else "MULTI_GPU",
        "num_machines": len(job.nodes),
        "num_processes": job.world_size,
        "machine_rank": job.node_index,
        "main_process_ip": host,
        "main_process_port": port,
        "use_cpu": job.accelerator == "cpu",
    }
    if "--use_deepspeed" in options and len(job.nodes) > 1 and _DEEPSPEED_LAUNCHER not in options:
        # Its default, pdsh, would start the ranks of all nodes from each node.
        values["deepspeed_config"] = {_DEEPSPEED_LAUNCHER[2:]: "standard"}
    return json.dumps(values, indent=1) + "\n"


def _counts(job: Job) -> tuple[contradictions.Count, ...]:
    return (
        contradictions.Count("--num_machines", len(job.nodes), contradictions.NODES),
        contradictions.Count("--num_processes", job.world_size, contradictions.RANKS),
        contradictions.Count("--machine_rank", job.node_index, contradictions.INDEX),
    )


def _refuse_config(job: Job, reader: Reader, path: str, options: set[str]) -> None:
    """A file of the user's own. Its machine_rank is the same on all nodes mostly, and the command line has the true one."""
    where = f"{reader.source(EXTRA)}: --config_file {redact.clipped(path)}"
    try:
        text = reader.files.text(absolute(path, reader.cwd), _MOST_CONFIG)
        told = _told(text or "{}", path)
    except (ValueError, RecursionError) as error:
        reader.warn(f"{where}: what it says is not compared with the plan: {error}")
        return
    if text is None:  # accelerate says so itself
        return
    if "distributed_type" not in told:
        reader.warn(f"{where}: what it says is not compared with the plan: expected lines `key: value`, one of them for distributed_type")
    for count in _counts(job)[:2]:
        name = count.option[2:]
        if count.contradicted_by(told.get(name, "")):
            reader.problem(contradictions.contradiction(f"{where} has {name} {told[name]}", count))
    if told.get("compute_environment") == "AMAZON_SAGEMAKER":
        reader.problem(f"{where} has compute_environment AMAZON_SAGEMAKER, by which each node would submit a job: expected LOCAL_MACHINE")
    _refuse_kind(job, reader, where, told.get("distributed_type", "").upper(), text, options)


def _refuse_kind(job: Job, reader: Reader, where: str, kind: str, text: str, options: set[str]) -> None:
    """A way to start processes by which each node would train alone."""
    by_mpi = "--mpirun_hostfile" in options or (len(job.nodes) == 1 and "mpirun_hostfile" in text)
    if kind in _ONE_PROCESS and job.world_size > 1 and not options.intersection(_WAYS) and not by_mpi:
        reader.problem(
            f"{where} has distributed_type {kind}, with which accelerate starts one process on each node, which trains alone, where "
            f"{job.world_size} ranks are planned: expected MULTI_GPU, which on CPUs starts ranks too (with use_cpu: true)"
        )
    by_deepspeed = "--use_deepspeed" in options or (kind == "DEEPSPEED" and not options.intersection(_WAYS))
    if by_deepspeed and len(job.nodes) > 1 and _DEEPSPEED_LAUNCHER not in options and not _OWN_NODE.search(text):
        reader.problem(
            f"{where} has no {_DEEPSPEED_LAUNCHER[2:]}: standard, so that each of {len(job.nodes)} nodes would start DeepSpeed for "
            f"itself, or for all: set it below deepspeed_config, or add {_DEEPSPEED_LAUNCHER} standard"
        )


def _told(text: str, path: str) -> dict[str, str]:
    """Of a configuration, what stands at its top as one word or number. Of YAML that is read which `accelerate config` writes, a line
    `key: value` each, and no more."""
    if path.endswith(".json"):
        found = json.loads(text)
        return {key: str(value) for key, value in found.items()} if isinstance(found, dict) else {}
    lines = re.finditer(r"""^(\w+)[ ]*:[ \t]+(["']?)([\w.+-]+)\2[ \t]*(?:#.*)?$""", text, re.MULTILINE)
    return {line[1]: line[3] for line in lines}


def _lint(job: Job, reader: Reader, options: set[str]) -> None:
    source = reader.source(EXTRA)
    for name in sorted(options.intersection(_MEETING)):
        reader.warn(f"{source} has its own {name}, which overrides the platform's: every node must say the same")
    if "--config_file" in options:
        reader.warn(f"{source} has its own --config_file, which takes the place of ranklaunch's: it must say what is distributed, and how")
    if "--cpu" in options and job.world_size > 1:
        reader.problem(
            f"{source} has --cpu, with which accelerate starts one process on each node and no more, where {job.world_size} ranks are "
            "expected: remove it; option --accelerator=cpu trains on CPUs"
        )
    if job.program.args[:1] in (("",), ("-",)):
        reader.problem(
            f"{reader.told(METHOD)}: the program's first argument is {job.program.args[0]!r}, on which accelerate fails (TypeError: "
            "unhashable type: 'list'): put another one before it, or use method torchrun"
        )
    if "--max_restarts" in options:
        reader.warn(f"{source} has --max_restarts: accelerate restarts this node's ranks without the other nodes")
    if job.slots_differ:
        slots = ", ".join(str(node.slots) for node in job.nodes)
        reader.problem(
            f"{reader.told(METHOD)} needs the same number of slots on every node, found {slots}: accelerate divides all processes evenly "
            "and drops the rest; method torchrun or spawn can"
        )
    if job.rank_table:
        reader.warn(f"method accelerate does not use the rank table {job.rank_table}")
