"""Groups of ranks when Megatron-LM splits a model: the same groups as in Megatron core.

A rank is a number with one digit for each kind of parallelism; `order` gives the order of the digits, the fastest first. The ranks of a
group of one kind differ only in this digit. Experts have digits of their own, without one for context parallelism.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ranklaunch.errors import counted

ORDER = "tp-cp-ep-dp-pp"
ORDER_DP_LAST = "tp-cp-ep-pp-dp"  # with --use-tp-pp-dp-mapping

Groups = list[list[int]]
_SEVERAL = {"mp": ("tp", "pp"), "dp_cp": ("dp", "cp"), "stage": ("tp", "cp", "dp")}


@dataclass(frozen=True)
class Layout:
    """Sizes of parallelism: tp tensor, pp pipeline, cp context, ep expert; etp tensor parallelism of experts, 0 for tp.

    The remaining factor of the world size is data parallelism. Groups are right only if `problems` yields nothing.
    """

    world_size: int
    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    etp: int = 0
    order: str = ORDER

    @property
    def expert_tp(self) -> int:
        return self.etp or self.tp

    @property
    def dp(self) -> int:
        return self.world_size // (self.tp * self.pp * self.cp)

    @property
    def expert_dp(self) -> int:
        return self.world_size // (self.expert_tp * self.ep * self.pp)

    @property
    def has_experts(self) -> bool:
        """True if the groups of experts differ from those of the rest of the model."""
        return self.ep > 1 or self.expert_tp != self.tp

    def problems(self) -> Iterator[str]:
        """Yield the reasons why Megatron would refuse the layout."""
        dense = {"tp": self.tp, "pp": self.pp, "cp": self.cp}
        experts = {"tp of experts" if self.etp else "tp": self.expert_tp, "ep": self.ep, "pp": self.pp}
        ranks = counted(self.world_size, "rank")
        if self.world_size % math.prod(dense.values()):
            yield f"{ranks} cannot be divided by {product(dense)}"
        elif self.world_size % math.prod(experts.values()):
            yield f"{ranks} cannot be divided by {product(experts)}, so the experts do not fit"
        elif self.pp > 1:
            yield from self._problems_of_pipelines()

    def _problems_of_pipelines(self) -> Iterator[str]:
        if self.dp != self.expert_dp and not self.order.endswith("pp"):
            yield f"with the order {self.order}, dp of experts must be that of the rest: {self.expert_dp} is not {self.dp}"
        elif self._stride("pp", self._sizes()) != self._stride("pp", self._expert_sizes()):
            yield f"with the order {self.order}, experts would have other pipelines than the rest"

    def groups(self, kind: str) -> Groups:
        """Return the groups of a kind. Groups and ranks ascend, as in Megatron.

        kind: tp, pp, cp or dp; for experts ep, expert_tp or expert_dp. Kinds of several digits: mp (all ranks of one model), dp_cp (ranks
        with the same weights) and stage (ranks with the same layers). embedding: first and last stage of a pipeline, which share the
        weights of the word embedding.
        """
        if kind == "embedding":
            return [group[:1] + group[1:][-1:] for group in self.groups("pp")]
        if kind in _SEVERAL:
            return self._of_several(_SEVERAL[kind])
        digit = kind.rpartition("_")[2]
        sizes = self._expert_sizes() if digit == "ep" or kind != digit else self._sizes()
        size, stride = sizes[digit], self._stride(digit, sizes)
        firsts = (rank for rank in range(self.world_size) if rank // stride % size == 0)
        return [list(range(first, first + size * stride, stride)) for first in firsts]

    def place(self, digit: str, rank: int) -> int:
        """Return a rank's index within its group. digit: tp, pp, cp or dp."""
        sizes = self._sizes()
        return rank // self._stride(digit, sizes) % sizes[digit]

    def _of_several(self, digits: tuple[str, ...]) -> Groups:
        by_place: dict[tuple[int, ...], list[int]] = {}
        sizes = self._sizes()
        fixed = [(self._stride(digit, sizes), sizes[digit]) for digit in ("tp", "cp", "dp", "pp") if digit not in digits]
        for rank in range(self.world_size):  # up to a million: a list is faster than a generator
            by_place.setdefault(tuple([rank // stride % size for stride, size in fixed]), []).append(rank)
        return list(by_place.values())

    def _stride(self, digit: str, sizes: Mapping[str, int]) -> int:
        """Return the difference of two ranks that differ by one in this digit."""
        faster = self.order.split("-")
        return math.prod(sizes[name] for name in faster[: faster.index(digit)])

    def _sizes(self) -> dict[str, int]:
        return {"tp": self.tp, "cp": self.cp, "ep": 1, "dp": self.dp, "pp": self.pp}

    def _expert_sizes(self) -> dict[str, int]:
        return {"tp": self.expert_tp, "cp": 1, "ep": self.ep, "dp": self.expert_dp, "pp": self.pp}


@dataclass(frozen=True)
class Stages:
    """Layers of each stage of a pipeline.

    chunks: virtual stages of each rank; a batch passes through all ranks once for each. first, last: layers of the first and of the last
    stage, None if they have as many as the rest.
    """

    layers: int
    pp: int
    chunks: int = 1
    first: int | None = None
    last: int | None = None

    def problems(self) -> Iterator[str]:
        """Yield the reasons why Megatron would refuse the division."""
        yield from self._uneven()
        if self.chunks > 1 and self.pp == 1:
            yield f"{self.chunks} virtual stages need a pipeline of more than one stage"

    def _uneven(self) -> Iterator[str]:
        ends = [count for count in (self.first, self.last) if count is not None]
        rest, stages = self.layers - sum(ends), self.pp - len(ends)
        if stages < 0 or rest < 0 or (not stages and rest):
            yield f"{counted(self.layers, 'layer')} cannot be divided: {sum(ends)} of them are for the first and last of {self.pp} stages"
        elif stages and (rest % (stages * self.chunks) or not rest):
            of = f"{stages} stages" if ends else f"pp {self.pp}"
            chunks = f" x {self.chunks} virtual stages" if self.chunks > 1 else ""
            yield f"{counted(rest, 'layer')} cannot be divided by {of}{chunks}"
        elif any(count % self.chunks for count in ends):
            yield f"the first and the last stage must have a multiple of {self.chunks} layers, one part for each virtual stage"

    def of(self, stage: int) -> list[range]:
        """Return the layers of a stage, counted from 0: one range for each virtual stage."""
        sizes = [count // self.chunks for count in self._sizes()]
        before = sum(sizes[:stage])
        starts = (chunk * sum(sizes) + before for chunk in range(self.chunks))
        return [range(start, start + sizes[stage]) for start in starts]

    def _sizes(self) -> list[int]:
        ends = {0: self.first, self.pp - 1: self.last}
        counts = {stage: count for stage, count in ends.items() if count is not None}
        rest = (self.layers - sum(counts.values())) // max(1, self.pp - len(counts))
        return [counts.get(stage, rest) for stage in range(self.pp)]


def product(sizes: Mapping[str, int]) -> str:
    """Return sizes as a product: "tp 2 x pp 4 x cp 1 = 8"."""
    return f"{' x '.join(f'{name} {size}' for name, size in sizes.items())} = {math.prod(sizes.values())}"


def as_json(layout: Layout) -> dict[str, Any]:
    """Return a layout as JSON. Without context parallelism there are no groups of cp, and without experts of their own none of experts."""
    kinds = ["tp", "pp", "dp", *(["cp"] if layout.cp > 1 else []), *(["ep", "expert_tp", "expert_dp"] if layout.has_experts else [])]
    sizes = {name: getattr(layout, name) for name in ("tp", "pp", "cp", "ep", "dp")}
    experts = {name: getattr(layout, name) for name in ("expert_tp", "expert_dp")} if layout.has_experts else {}
    return {**sizes, **experts, "order": layout.order, "groups": {kind: layout.groups(kind) for kind in kinds}}
