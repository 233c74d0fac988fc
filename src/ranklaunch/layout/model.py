"""Contents of a shown layout: its nodes, the layers of its stages, its groups, and what is doubtful about it."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ranklaunch.plan.megatron import Layout, Stages, as_json

# Kinds of groups in the order in which they are shown, each with what its ranks have to do with each other.
KINDS = {
    "tp": "share each layer",
    "cp": "share each sequence",
    "pp": "have the layers of one model in turn",
    "dp": "have the same weights and other data",
    "dp_cp": "add up gradients",
    "mp": "are one whole model",
    "embedding": "share the word embedding",
    "ep": "have different experts of the same layers",
    "expert_tp": "share each expert",
    "expert_dp": "have the same experts and other data",
}


@dataclass(frozen=True)
class Picture:
    """slots: ranks of each node. stages: None where nobody said how many layers there are."""

    layout: Layout
    slots: tuple[int, ...]
    stages: Stages | None = None

    @property
    def firsts(self) -> list[int]:
        """The first rank of each node."""
        return [0, *itertools.accumulate(self.slots[:-1])]

    @property
    def kinds(self) -> list[str]:
        """Kinds of groups that say something."""
        layout = self.layout
        experts = ["ep", "expert_tp", "expert_dp"] if layout.has_experts else []
        context = {"cp", "dp_cp"} if layout.cp > 1 else set()
        shown = {"tp", "pp", "dp", "mp", *context, *experts, *(["embedding"] if layout.pp > 1 else [])}
        return [kind for kind in KINDS if kind in shown]

    def warnings(self) -> Iterator[str]:
        layout = self.layout
        for kind in ("tp", "cp", "ep"):
            split = self._split(kind) if getattr(layout, kind) > 1 else None
            if split and kind == "tp":
                yield (
                    f"tp {layout.tp}: {split} share each layer and are spread over nodes, so all of its traffic goes over the network; "
                    "a tp that divides the slots of every node stays inside"
                )
            elif split:
                yield f"{kind} {getattr(layout, kind)}: {split} are spread over nodes"
        for kind in ("tp", "cp", "pp", "dp", "ep"):
            size = getattr(layout, kind)
            if size > 1 and size % 2:
                yield f"{kind} {size}: groups of an odd size may be slow; an even number of ranks pairs up"

    def _split(self, kind: str) -> str:
        """A group that is on more than one node, in words."""
        firsts = self.firsts
        for group in self.layout.groups(kind):
            if bisect_right(firsts, group[0]) != bisect_right(firsts, group[-1]):
                return f"ranks {short(group)}"
        return ""


def short(ranks: list[int]) -> str:
    """0, 1 and 8; of many 0 to 56 by 8."""
    step = ranks[1] - ranks[0] if len(ranks) > 1 else 1
    if len(ranks) > 4 and ranks == list(range(ranks[0], ranks[-1] + 1, step)):
        return f"{ranks[0]} to {ranks[-1]}{f' by {step}' if step > 1 else ''}"
    return " and ".join(filter(None, [", ".join(map(str, ranks[:-1])), str(ranks[-1])]))


def document(picture: Picture) -> dict[str, Any]:
    """For --format json. Ranks of a node are first_rank and those behind it; layers count from 0, last included."""
    layout, stages = picture.layout, picture.stages
    content = as_json(layout)
    content["groups"] = {kind: layout.groups(kind) for kind in picture.kinds}
    nodes = [
        {"index": index, "first_rank": first, "slots": slots} for index, (first, slots) in enumerate(zip(picture.firsts, picture.slots))
    ]
    layers = (
        [{"stage": stage, "layers": [[part[0], part[-1]] for part in stages.of(stage)]} for stage in range(layout.pp)] if stages else None
    )
    return {"world_size": layout.world_size, **content, "nodes": nodes, "stages": layers, "warnings": list(picture.warnings())}
