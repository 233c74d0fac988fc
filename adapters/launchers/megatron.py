"""torchrun for programs made with Megatron-LM: its layout is checked before anything starts, and passed on as its flags."""

from __future__ import annotations

from dataclasses import replace

from ranklaunch.adapters.launchers import torchrun
from ranklaunch.adapters.launchers.shared.base import once, own_script
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
    default_text="1 where a layer or a sequence is shared on GPUs, which Megatron-LM requires before Blackwell; unset with its FSDP",
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

FSDP_FLAGS = {"--use-torch-fsdp2", "--use-megatron-fsdp"}  # which require another CUDA_DEVICE_MAX_CONNECTIONS than 1


def plan(job: Job, reader: Reader, templates: Templates) -> Plan:
    script = own_script(job, reader)
    if script:
        layout, env = _of_script(script, job, reader)
        planned = once(job, reader, templates, NAME, "plain/command.j2", script)
    else:
        layout, env = _layout(job, reader)
        planned = torchrun.plan_by(_with_flags(job, reader), reader, templates, "megatron/command.j2")
    processes = tuple(replace(process, env={**process.env, **env}) for process in planned.processes)
    return replace(planned, method=NAME, processes=processes, layout=layout)


def _of_script(script: Script, job: Job, reader: Reader) -> tuple[Layout | None, dict[str, str]]:
    """Return the layout, if known, of one of Megatron's own scripts, and its variables. Such scripts start the ranks themselves."""
    args = script.starts[0].words
    unknown = _unknown(script, job)
    if unknown:
        reader.warn(f"{script.path}: its layout is not checked: {unknown}")
        return None, {}
    for variable, flag in FLAGS.items():
        if reader.is_set(variable) and not AS_WRITTEN.values(args, flag):
            reader.record(variable)
            reader.problem(f"{reader.described(variable)}, and {script.path}, which starts its ranks itself, has no {flag}: write it there")
    return _layout(replace(job, program=replace(job.program, args=args)), reader)


def _unknown(script: Script, job: Job) -> str:
    """Return why the options of a script's ranks are unknown, "" where they are known. What is behind an option is its value."""
    if len(script.starts) > 1:
        return f"it starts ranks in {len(script.starts)} places or ways"
    args = script.starts[0].words
    previous = next((previous for previous, word in zip(("", *args), args) if _may_hide_layout(previous, word)), None)
    if previous is not None:
        return f"what stands behind {clipped(shown(previous) or 'the launcher')!r} is known only when it runs"
    nodes, slots = (TORCHRUN.values(args, option)[:1] for option in ("--nnodes", "--nproc_per_node"))
    ranks = (number("".join(nodes) or "1") or 0) * (number("".join(slots)) or 0)
    return f"it starts {ranks} ranks, and this job has {job.world_size}" if ranks not in (0, job.world_size) else ""


def _may_hide_layout(previous: str, word: str) -> bool:
    """Return True for a word, known only in part, that may be a size of the layout or its option."""
    name = word.partition("=")[0]
    may_be_more = UNKNOWN in name and not previous.startswith("--") and (name[:1] == "-" or not name.strip(UNKNOWN))
    return is_unknown(word) and (previous in _LAYOUT or name in _LAYOUT or may_be_more)


def _with_flags(job: Job, reader: Reader) -> Job:
    """Return the job with flags for sizes set but missing in its program's arguments; before its own --, as flags end there."""
    options = _options(job)
    missing = [(variable, flag) for variable, flag in FLAGS.items() if reader.is_set(variable) and not AS_WRITTEN.values(options, flag)]
    flags = tuple(word for variable, flag in missing for word in (flag, str(reader.get(variable))))
    return replace(job, program=replace(job.program, args=(*options, *flags, *job.program.args[len(options) :])))


def _options(job: Job) -> tuple[str, ...]:
    return tuple(before(job.program.args, "--"))


def _layout(job: Job, reader: Reader) -> tuple[Layout, dict[str, str]]:
    """Return the requested layout, checked, and its variables. Our variables or the program's own arguments request a layout, and must
    not
    contradict each other."""
    args = _options(job)
    tp, pp, cp, ep = (_size(args, variable, flag, reader) for variable, flag in FLAGS.items())
    etp = _own(args, EXPERT_TP_FLAG, reader) or 0
    layout = Layout(job.world_size, tp, pp, cp, ep, etp, ORDER_DP_LAST if DP_LAST_FLAG in args else ORDER)
    _check(job, layout, reader)
    return layout, _environment(job, layout, reader)


def _size(args: tuple[str, ...], variable: Variable[int], flag: str, reader: Reader) -> int:
    asked = reader.get(variable)
    own = _own(args, flag, reader)
    if own is None:
        return asked
    if reader.is_set(variable) and own != asked:
        reader.problem(f"{reader.described(variable)} contradicts the program's own {flag} {own}: remove one of them")
    reader.note(variable, str(own), f"program's {flag}")
    return own


def _own(args: tuple[str, ...], flag: str, reader: Reader) -> int | None:
    """The program's own value of a flag: the last one, which is the one that argparse takes."""
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
    # Tensor parallelism counts fastest in both orders: its groups are neighbours, from 0 on.
    split = next((node for node in job.nodes if node.first_rank % layout.tp), None)
    if split:
        first = split.first_rank // layout.tp * layout.tp
        slots = ", ".join(map(str, sorted({node.slots for node in job.nodes})))
        reader.warn(
            f"{reader.described(TP)}: ranks {first} to {first + layout.tp - 1} share each layer and are spread over nodes (rank "
            f"{split.first_rank} is the first of node {split.index}), so all of its traffic goes over the network between them; a "
            f"size that divides the slots of every node ({slots}) keeps it inside"
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
    """torchrun with the layout of the model."""

    NAME = NAME
    VARIABLES = (*torchrun.Torchrun.VARIABLES, TP, PP, CP, EP, CONNECTIONS)
    plan = staticmethod(plan)
