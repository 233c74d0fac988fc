"""Check of Megatron-LM's own arguments for model and batch against the layout. Ranks refuse the same, but only after the rendezvous.

The rules are from megatron/training/arguments.py and megatron.core's TransformerConfig (0.16). Missing or non-numeric
arguments are not checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ranklaunch.adapters.launchers.shared import user_options
from ranklaunch.errors import counted
from ranklaunch.plan.megatron import Layout, Stages

LAYERS, LAYOUT = "--num-layers", "--pipeline-model-parallel-layout"
CHUNKS, CHUNK_LAYERS = "--num-virtual-stages-per-pipeline-rank", "--num-layers-per-virtual-pipeline-stage"
FIRST, LAST = "--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers"
COUNTED_AS_LAYERS = ("--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split")
HEADS, GROUPS, GROUPED = "--num-attention-heads", "--num-query-groups", "--group-query-attention"
MICRO, GLOBAL, RAMPUP = "--micro-batch-size", "--global-batch-size", "--rampup-batch-size"
SEQUENCE, SEQUENCE_PARALLEL, EXPERTS = "--seq-length", "--sequence-parallel", "--num-experts"


def problems(args: Sequence[str], layout: Layout) -> Iterator[str]:
    """Yield the contradictions between a program's arguments and the layout."""
    yield from _layers(args, layout)
    yield from _heads(args, layout.tp)
    yield from _batch(args, layout)
    yield from _sequence(args, layout)
    yield from _experts(args, layout)


def stages(args: Sequence[str], pp: int) -> Stages | None:
    """Return the division of layers by the arguments; None if no number of layers is given, or an explicit layout."""
    layers = number(args, LAYERS)
    if layers is None or LAYOUT in user_options.AS_WRITTEN.options(args):
        return None
    layers += sum(name in args for name in COUNTED_AS_LAYERS)
    of_chunk = number(args, CHUNK_LAYERS)
    chunks = number(args, CHUNKS) or (layers // pp // of_chunk if of_chunk and not layers % (pp * of_chunk) else 1)
    return Stages(layers, pp, chunks, number(args, FIRST), number(args, LAST))


def number(args: Sequence[str], name: str) -> int | None:
    """Return the value of an option, None if it is no positive integer. The last occurrence counts, as with argparse."""
    text = user_options.AS_WRITTEN.last(args, name)
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 and int(text) else None


def _layers(args: Sequence[str], layout: Layout) -> Iterator[str]:
    split = stages(args, layout.pp)
    of_chunk = number(args, CHUNK_LAYERS)
    if not split:
        return
    if of_chunk and split.layers % (layout.pp * of_chunk):
        yield f"{LAYERS} {number(args, LAYERS)} cannot be divided by pp {layout.pp} x {CHUNK_LAYERS} {of_chunk}"
    else:
        yield from (f"{LAYERS} {number(args, LAYERS)}: {problem}" for problem in split.problems())


def _heads(args: Sequence[str], tp: int) -> Iterator[str]:
    heads, groups = number(args, HEADS), number(args, GROUPS) if GROUPED in args else None
    if heads and heads % tp:
        yield f"{HEADS} {heads} cannot be divided by tp {tp}"
    if groups and groups % tp and tp % groups:
        yield f"{GROUPS} {groups} and tp {tp}: one must divide the other"


def _batch(args: Sequence[str], layout: Layout) -> Iterator[str]:
    micro, whole = number(args, MICRO), number(args, GLOBAL)
    step = (micro or 0) * layout.dp
    if not (step and whole and whole % step) or RAMPUP in user_options.AS_WRITTEN.options(args):
        return
    below, above = whole // step * step, (whole // step + 1) * step
    nearest = " or ".join(str(size) for size in (below, above) if size)
    yield f"{GLOBAL} {whole} cannot be divided by {MICRO} {micro} x dp {layout.dp} = {step}; {nearest} can"


def _sequence(args: Sequence[str], layout: Layout) -> Iterator[str]:
    length = number(args, SEQUENCE)
    if length and layout.cp > 1 and length % (2 * layout.cp):
        yield f"{SEQUENCE} {length} cannot be divided by 2 x cp {layout.cp}"
    if length and SEQUENCE_PARALLEL in args and length // layout.cp % layout.tp:
        share = f" of a cp rank, {length // layout.cp}," if layout.cp > 1 else ""
        yield f"{SEQUENCE} {length}{share} cannot be divided by tp {layout.tp}, as {SEQUENCE_PARALLEL} does"


def _experts(args: Sequence[str], layout: Layout) -> Iterator[str]:
    experts = number(args, EXPERTS)
    if experts and experts % layout.ep:
        yield f"{EXPERTS} {experts}: {counted(experts, 'expert')} cannot be divided by ep {layout.ep}"
    if experts and layout.tp > 1 and SEQUENCE_PARALLEL not in args:
        yield f"{EXPERTS} with tp {layout.tp} needs {SEQUENCE_PARALLEL}"
