"""Layout as lines of text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ranklaunch import errors
from ranklaunch.errors import counted
from ranklaunch.layout.model import KINDS, Picture
from ranklaunch.plan.megatron import Stages, product

MOST_RANKS = 64  # with more ranks, lines are stages instead of ranks
MOST_GROUPS, FIRST_ONES = 16, 4  # groups in a list; of a longer list, the first ones and the last one
MOST_MEMBERS = 16


def lines(picture: Picture) -> Iterator[str]:
    layout = picture.layout
    sizes = {name: getattr(layout, name) for name in ("tp", "pp", "cp", "dp")}
    experts = f", experts: ep {layout.ep} x tp {layout.expert_tp} x dp {layout.expert_dp}" if layout.has_experts else ""
    yield f"world size {layout.world_size}: {product(sizes)}{experts}; {_nodes(picture.slots)}"
    yield f"order {layout.order}: the first counts fastest from rank to rank"
    for warning in picture.warnings():
        yield f"warning: {warning}"
    yield ""
    for kind in picture.kinds:
        groups = layout.groups(kind)
        yield f"{kind:<9}  {counted(len(groups), 'group')} of {len(groups[0])}, which {KINDS[kind]}: {_groups(groups)}"
    yield ""
    yield from _ranks(picture) if layout.world_size <= MOST_RANKS else _stages(picture)


def _nodes(slots: Sequence[int]) -> str:
    shown = slots[:1] if len(set(slots)) == 1 else slots
    return f"{counted(len(slots), 'node')} of {', '.join(map(str, shown))} slots"


def _groups(groups: Sequence[Sequence[int]]) -> str:
    shown = groups if len(groups) <= MOST_GROUPS else groups[:FIRST_ONES]
    rest = [] if shown is groups else ["...", _group(groups[-1])]
    return ", ".join([*map(_group, shown), *rest])


def _group(ranks: Sequence[int]) -> str:
    shown = ranks if len(ranks) <= MOST_MEMBERS else ranks[:FIRST_ONES]
    rest = [] if shown is ranks else ["...", f"g{ranks[-1]}"]
    return f"[{', '.join([*(f'g{rank}' for rank in shown), *rest])}]"


def _ranks(picture: Picture) -> Iterator[str]:
    """Yield a table with a line for each rank."""
    layout = picture.layout
    digits = ["tp", *(["cp"] if layout.cp > 1 else []), "dp", "pp"]
    yield ("".join(f"{name:<7}" for name in ("rank", "node", "local", *digits)) + ("layers" if picture.stages else "")).rstrip()
    for node, (first, slots) in enumerate(zip(picture.firsts, picture.slots)):
        for local in range(slots):
            places = [layout.place(digit, first + local) for digit in digits]
            row = [f"g{first + local}", str(node), str(local), *map(str, places)]
            yield ("".join(f"{word:<7}" for word in row) + layers(picture.stages, places[-1])).rstrip()


def _stages(picture: Picture) -> Iterator[str]:
    """Yield a line for each pipeline stage."""
    for stage, ranks in enumerate(picture.layout.groups("stage")):
        of_layers = f"layers {layers(picture.stages, stage)}; " if picture.stages else ""
        yield f"stage {stage}: {of_layers}ranks {runs(ranks)}"


def runs(ranks: Sequence[int]) -> str:
    """Return ranks as ranges: "0-7, 32-39". Of many ranges, only the first ones and the last one."""
    spans = errors.runs(ranks)
    shown = spans if len(spans) <= MOST_GROUPS else spans[:FIRST_ONES]
    texts = [f"{first}-{last}" if last > first else str(first) for first, last in shown]
    return ", ".join(texts if shown is spans else [*texts, "...", f"{spans[-1][0]}-{spans[-1][1]}"])


def layers(stages: Stages | None, stage: int) -> str:
    """Return the layers of a stage as ranges, one for each virtual stage: "0-3, 16-19"; "" if unknown."""
    return ", ".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else str(part[0]) for part in stages.of(stage) if part) if stages else ""
