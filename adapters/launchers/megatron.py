"""Method megatron: torchrun for programs made with Megatron-LM. The parallel layout is checked before the start, and passed as flags."""

from __future__ import annotations

from dataclasses import replace

from ranklaunch.adapters.launchers import torchrun
from ranklaunch.adapters.launchers.shared.base import once, script_of_program
from ranklaunch.adapters.launchers.shared.scripts.rank_scripts import Script
from ranklaunch.adapters.launchers.shared.user_options import AS_WRITTEN, TORCHRUN, UNKNOWN, before, is_unknown, shown
from ranklaunch.env import parse
from ranklaunch.env.job import Job
from ranklaunch.env.reader import Reader, Variable
from ranklaunch.errors import number
from ranklaunch.plan import megatron_args
from ranklaunch.plan.megatron import ORDER, ORDER_DP_LAST, Layout
from ranklaunch.plan.model import Plan
from ranklaunch.render.templates import Templates
from ranklaunch.showing import clipped

NAME = "megatron"

TP = Variable("tp", ("RANKLAUNCH_TP",), parse.positive, 1, "tensor parallelism: ranks that share each layer", option="--tp")
PP = Variable("pp", ("RANKLAUNCH_PP",), parse.positive, 1, "pipeline parallelism: ranks that divide the layers", option="--pp")
CP = Variable("cp", ("RANKLAUNCH_CP",), parse.positive, 1, "context parallelism: ranks that share each sequence", option="--cp")
EP = Variable("ep", ("RANKLAUNCH_EP",), parse.positive, 1, "expert parallelism: ranks that divide the experts", option="--ep")
CONNECTIONS = Variable(
    "cuda_device_max_connections", ("CUDA_DEVICE_MAX_CONNECTIONS",), parse.text, "1", "hardware queues of a GPU",
    default_text="1 on GPUs with tp or cp, as Megatron-LM requires before Blackwell; unset with its FSDP",
)  # fmt: skip

FLAGS = {
    TP: "--tensor-model-parallel-size",
    PP: "--pipeline-model-parallel-size",
    CP: "--context-parallel-size",
    EP: "--expert-model-parallel-size",
}
EXPERT_TP_FLAG = "--expert-tensor-parallel-size"
DP_LAST_FLAG = "--use-tp-pp-dp-mapping"

_LAYOUT = (*FLAGS.values(), EXPERT_TP_FLAG)

FSDP_FLAGS = {"--use-torch-fsdp2", "--use-megatron-fsdp"}  # with these, CUDA_DEVICE_MAX_CONNECTIONS must not be 1


def plan(job: Job, reader: Reader, templates: Templates) -> Plan:
    script = script_of_program(job, reader)
    if script:
        layout, env = _of_script(script, job, reader)
        planned = once(job, reader, templates, NAME, "plain/command.j2", script)
    else:
        layout, env = _layout(job, reader)
        planned = torchrun.plan_by(_with_flags(job, reader), reader, templates, "megatron/command.j2")
    processes = tuple(replace(process, env={**process.env, **env}) for process in planned.processes)
    return replace(planned, method=NAME, processes=processes, layout=layout)


def _of_script(script: Script, job: Job, reader: Reader) -> tuple[Layout | None, dict[str, str]]:
    """Return the layout of a script that starts the ranks itself (None if unknown), and its variables."""
    args = script.starts[0].words
    unknown = _unknown(script, job)
    if unknown:
        reader.warn(f"{script.path}: its layout is not checked: {unknown}")
        return None, {}
    for variable, flag in FLAGS.items():
        if reader.is_set(variable) and not AS_WRITTEN.values(args, flag):
            reader.record(variable)
            reader.problem(f"{reader.described(variable)}: {script.path} starts its ranks itself and has no {flag}: write it in the script")
    return _layout(replace(job, program=replace(job.program, args=args)), reader)


def _unknown(script: Script, job: Job) -> str:
    """Return the reason why the options of a script's ranks are unknown, "" if they are known."""
    if len(script.starts) > 1:
        return f"it starts ranks in {len(script.starts)} places or ways"
    args = script.starts[0].words
    previous = next((previous for previous, word in zip(("", *args), args) if _may_hide_layout(previous, word)), None)
    if previous is not None:
        return f"the words after {clipped(shown(previous) or 'the launcher')!r} are known only when the script runs"
    nodes, slots = (TORCHRUN.values(args, option)[:1] for option in ("--nnodes", "--nproc_per_node"))
    ranks = (number("".join(nodes) or "1") or 0) * (number("".join(slots)) or 0)
    return f"it starts {ranks} ranks, and this job has {job.world_size}" if ranks not in (0, job.world_size) else ""


def _may_hide_layout(previous: str, word: str) -> bool:
    """Return True for a partly unknown word that may be an option of the layout or its value."""
    name = word.partition("=")[0]
    may_be_more = UNKNOWN in name and not previous.startswith("--") and (name[:1] == "-" or not name.strip(UNKNOWN))
    return is_unknown(word) and (previous in _LAYOUT or name in _LAYOUT or may_be_more)


def _with_flags(job: Job, reader: Reader) -> Job:
    """Return the job with flags for those sizes that are set but missing in the program's arguments. The flags come before a `--`."""
    options = _options(job)
    missing = [(variable, flag) for variable, flag in FLAGS.items() if reader.is_set(variable) and not AS_WRITTEN.values(options, flag)]
    flags = tuple(word for variable, flag in missing for word in (flag, str(reader.get(variable))))
    return replace(job, program=replace(job.program, args=(*options, *flags, *job.program.args[len(options) :])))


def _options(job: Job) -> tuple[str, ...]:
    return tuple(before(job.program.args, "--"))


def _layout(job: Job, reader: Reader) -> tuple[Layout, dict[str, str]]:
    """Return the requested layout after a check, and its variables.

    The layout comes from ranklaunch's settings or from the program's own arguments, which must not contradict each other.
    """
    args = _options(job)
    tp, pp, cp, ep = (_size(args, variable, flag, reader) for variable, flag in FLAGS.items())
    etp = _argument(args, EXPERT_TP_FLAG, reader) or 0
    layout = Layout(job.world_size, tp, pp, cp, ep, etp, ORDER_DP_LAST if DP_LAST_FLAG in args else ORDER)
    _check(job, layout, reader)
    return layout, _environment(job, layout, reader)


def _size(args: tuple[str, ...], variable: Variable[int], flag: str, reader: Reader) -> int:
    setting = reader.get(variable)
    argument = _argument(args, flag, reader)
    if argument is None:
        return setting
    if reader.is_set(variable) and argument != setting:
        reader.problem(f"{reader.described(variable)} contradicts the program's own {flag} {argument}: remove one of them")
    reader.note(variable, str(argument), f"program's {flag}")
    return argument


def _argument(args: tuple[str, ...], flag: str, reader: Reader) -> int | None:
    """Return the value of a flag in the program's arguments: the last one, as argparse takes it; None without the flag."""
    texts = AS_WRITTEN.values(args, flag)
    if not texts:
        return None
    try:
        return parse.positive(texts[-1])
    except ValueError as error:
        reader.problem(f"the program's own {flag} {clipped(texts[-1])!r}: {error}")
        return 1


def _check(job: Job, layout: Layout, reader: Reader) -> None:
    described = ", ".join(map(reader.described, FLAGS))
    problems = tuple(layout.problems())
    for problem in problems:
        reader.problem(f"{problem}: change {described}, or the number of ranks")
    for problem in () if problems else megatron_args.problems(_options(job), layout):
        reader.problem(f"the program's {problem}")
    # Tensor parallelism counts fastest in both orders: a tp group is a run of consecutive ranks.
    split = next((node for node in job.nodes if node.first_rank % layout.tp), None)
    if split:
        first = split.first_rank // layout.tp * layout.tp
        slots = ", ".join(map(str, sorted({node.slots for node in job.nodes})))
        reader.warn(
            f"{reader.described(TP)}: ranks {first} to {first + layout.tp - 1} share each layer and are spread over nodes (rank "
            f"{split.first_rank} is the first of node {split.index}), so all of their traffic goes over the network; choose a "
            f"size that divides the slots of every node ({slots})"
        )


def _environment(job: Job, layout: Layout, reader: Reader) -> dict[str, str]:
    if reader.is_set(CONNECTIONS):
        reader.record(CONNECTIONS)
        return {}
    shared = layout.tp > 1 or layout.cp > 1
    if job.accelerator != "gpu" or not shared or FSDP_FLAGS.intersection(_options(job)):
        return {}
    reader.note(CONNECTIONS, CONNECTIONS.default, "default with tp or cp on GPUs: Megatron-LM requires it")
    return {CONNECTIONS.name: CONNECTIONS.default}


class Megatron(torchrun.Torchrun):
    """torchrun with the parallel layout of a Megatron-LM model."""

    NAME = NAME
    VARIABLES = (*torchrun.Torchrun.VARIABLES, TP, PP, CP, EP, CONNECTIONS)
    plan = staticmethod(plan)
