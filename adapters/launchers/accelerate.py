"""Method accelerate: one `accelerate launch` per node (accelerate 1.15), which runs torch's agent in its own process."""

from __future__ import annotations

import json
from collections.abc import Mapping

from ranklaunch.adapters.launchers import torchrun
from ranklaunch.adapters.launchers.shared import base, contradictions, user_options
from ranklaunch.adapters.launchers.shared.accelerate import default_file, merge
from ranklaunch.adapters.launchers.shared.base import Need
from ranklaunch.env import parse
from ranklaunch.env.job import Job
from ranklaunch.env.reader import Reader, Variable
from ranklaunch.env.settings import METHOD
from ranklaunch.plan.model import File, Plan
from ranklaunch.render.templates import Templates
from ranklaunch.showing import clipped

NAME = "accelerate"
OPTIONS = user_options.ACCELERATE
MODULE = "accelerate.commands.launch"

EXTRA = base.further_options(
    ("RANKLAUNCH_EXTRA_ACCELERATE_PARAMS",), "further options of accelerate launch, such as --use_fsdp; the last of two equal options wins"
)
MIXED_PRECISION = Variable(
    "mixed_precision", ("RANKLAUNCH_MIXED_PRECISION",), parse.OneOf("no", "fp16", "bf16", "fp8"), "",
    "precision in which the model computes: no, fp16, bf16 or fp8", option="--mixed-precision",
    default_text="that of the program, else no",
)  # fmt: skip

CONFIG = Variable(
    "accelerate_config", ("ACCELERATE_CONFIG_FILE",), parse.text, "", "configuration file of accelerate, YAML or JSON",
    default_text="accelerate/default_config.yaml in the cache, if it exists",
)  # fmt: skip
_FILE = "--config_file"
_DEEPSPEED_LAUNCHER = "--deepspeed_multinode_launcher"


def plan(job: Job, reader: Reader, templates: Templates) -> Plan:
    extra = reader.get(EXTRA)
    options = OPTIONS.options(extra)
    _lint(job, reader, options)
    counts = (
        contradictions.Count("--num_machines", len(job.nodes), contradictions.NODES),
        contradictions.Count("--num_processes", job.world_size, contradictions.RANKS),
        contradictions.Count("--machine_rank", job.node_index, contradictions.INDEX),
    )
    contradictions.refuse(reader, EXTRA, extra, OPTIONS, NAME, counts)
    host, port = base.address(base.meeting_host(job, reader)), reader.get(base.MASTER_PORT)
    values = _merged(job, reader, extra, options, _config(job, options, host, port))
    config = File(base.in_attempt(job, "accelerate.json"), json.dumps(values, indent=1) + "\n")
    extra = user_options.without(OPTIONS.parsed(extra), (_FILE,))  # replaced by ranklaunch's file
    outputs = torchrun.rank_outputs(job, reader, templates, NAME, extra)
    shown = torchrun.with_dollars_doubled(job)
    argv = templates.command(
        "accelerate/command.j2",
        job=shown,
        main_process_ip=host,
        main_process_port=port,
        config_file=config.path,
        mixed_precision=reader.get(MIXED_PRECISION),
        log_dir=outputs.folder if outputs else "",
        extra=extra,
    )
    own_words = user_options.before(argv, shown.program.path)
    if outputs and not OPTIONS.writes_to(own_words, "--log_dir", outputs.folder):
        outputs = None  # the user's template writes elsewhere
    options = OPTIONS.options(own_words)
    argv = base.script_or_module(job, reader, templates, argv, (NAME, "launch"), MODULE)
    env = {"TORCHELASTIC_ERROR_FILE": base.in_attempt(job, "accelerate_error.json")}
    if outputs:
        # PET_REDIRECTS: accelerate has no option for it, and torch reads it. PET_LOG_DIR: for a torchrun that a rank starts.
        env.update({"PET_REDIRECTS": "3", "PET_LOG_DIR": outputs.folder})
    if job.accelerator == "cpu":
        env["ACCELERATE_USE_CPU"] = "true"  # without the variable, on a machine without GPUs, each rank would train alone
    return torchrun.plan_of(job, reader, NAME, argv, env, own_words, options, outputs, files=(config,))


def _merged(job: Job, reader: Reader, extra: tuple[str, ...], options: set[str], job_values: dict[str, object]) -> dict[str, object]:
    """Return the configuration `job_values` merged into the user's file, or `job_values` if the user has none."""
    named = OPTIONS.last(extra, _FILE)
    if named:
        path, source = named, reader.source(EXTRA)
        where = f"{source}: {_FILE} {clipped(path)}"
    elif reader.is_set(CONFIG):
        path, source = reader.get(CONFIG), CONFIG.name
        where = f"{source}={clipped(path)}"
    else:
        path = where = "" if "--cpu" in options else default_file.path(reader)
        source = "accelerate's default file"
    if not path:
        return job_values
    path = reader.absolute(path)
    reader.note(CONFIG, path, source)
    return merge.merged(job, reader, path, where, job_values, options)


def _config(job: Job, options: set[str], host: str, port: int) -> dict[str, object]:
    """Return accelerate's configuration with this node's place in the job.

    MULTI_GPU makes accelerate start ranks, on CPUs and for a single rank too. An option --multi_gpu would exclude the user's --use_fsdp and
    --use_deepspeed; these options override the key of the file. The mixed precision is not in the file: DeepSpeed refuses it there.
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
    if "--use_deepspeed" in options and job.has_peers and _DEEPSPEED_LAUNCHER not in options:
        # DeepSpeed's default launcher, pdsh, would start the ranks of all nodes on each node.
        values["deepspeed_config"] = {_DEEPSPEED_LAUNCHER[2:]: "standard"}
    return values


def _lint(job: Job, reader: Reader, options: set[str]) -> None:
    source = reader.source(EXTRA)
    contradictions.warn_of_meeting(reader, source, options, "--main_process_ip", "--main_process_port")
    if "--cpu" in options and job.world_size > 1:
        reader.problem(
            f"{source} has --cpu, with which accelerate starts only one process on each node, but {job.world_size} ranks are planned: "
            "remove it; option --accelerator=cpu trains on CPUs"
        )
    if job.slots_differ:
        slots = ", ".join(str(node.slots) for node in job.nodes)
        reader.problem(
            f"{reader.described(METHOD)} needs the same number of slots on every node, found {slots}: "
            "accelerate divides all processes evenly and drops the rest; use method torchrun or spawn"
        )
    torchrun.lint(job, reader, NAME, source, options)


class Accelerate(torchrun.Torchrun):
    """torch's agent in the process of `accelerate launch`."""

    NAME = NAME
    VARIABLES = (
        base.MASTER_PORT,
        EXTRA,
        MIXED_PRECISION,
        torchrun.SHUTDOWN,
        CONFIG,
        default_file.HF_HOME,
        default_file.CACHE,
        default_file.HOME,
    )
    plan = staticmethod(plan)

    @staticmethod
    def needs() -> Mapping[str, Need]:
        return {NAME: Need("it comes with Hugging Face Accelerate: is --python the interpreter that has it?")}
