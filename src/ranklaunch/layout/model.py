"""Content of a shown layout: nodes, layers of the pipeline stages, groups of ranks, and warnings."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ranklaunch.plan.megatron import Layout, Stages, as_json

# Kinds of groups in the order of the output, each with the relation of its ranks (as in: groups whose ranks share each layer).
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
    """Layout on nodes. slots: number of ranks of each node. stages: layers of the stages, None if the number of layers is unknown."""

    layout: Layout
    slots: tuple[int, ...]
    stages: Stages | None = None

    @property
    def firsts(self) -> list[int]:
        """First rank of each node."""
        return [0, *itertools.accumulate(self.slots[:-1])]

    @property
    def kinds(self) -> list[str]:
        """Kinds of groups to show: context, expert and embedding groups only if the layout has them."""
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
                    f"tp {layout.tp}: {split} share each layer and are spread over nodes, so all of their traffic goes over the network; "
                    "choose a tp that divides the slots of every node"
                )
            elif split:
                yield f"{kind} {getattr(layout, kind)}: {split} are spread over nodes"
        for kind in ("tp", "cp", "pp", "dp", "ep"):
            size = getattr(layout, kind)
            if size > 1 and size % 2:
                yield f"{kind} {size}: groups of an odd size may be slow; an even number of ranks pairs up"

    def _split(self, kind: str) -> str:
        """Return the first group of a kind with ranks on several nodes, as text; "" if there is none."""
        firsts = self.firsts
        for group in self.layout.groups(kind):
            if bisect_right(firsts, group[0]) != bisect_right(firsts, group[-1]):
                return f"ranks {short(group)}"
        return ""


def short(ranks: list[int]) -> str:
    """Return ranks as text: "0, 1 and 8"; many ranks with equal steps as "0 to 56 by 8"."""
    step = ranks[1] - ranks[0] if len(ranks) > 1 else 1
    if len(ranks) > 4 and ranks == list(range(ranks[0], ranks[-1] + 1, step)):
        return f"{ranks[0]} to {ranks[-1]}{f' by {step}' if step > 1 else ''}"
    return " and ".join(filter(None, [", ".join(map(str, ranks[:-1])), str(ranks[-1])]))


def document(picture: Picture) -> dict[str, Any]:
    """Return the content of --format json.

    A node has the ranks from first_rank to first_rank + slots - 1. Layers are [first, last] pairs, from 0, with the last included.
    """
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
