"""Programs that are not there: how fast each configuration of a space would be, what memory it would need, and a search over them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ranklaunch.tune.autotuning import settled
from ranklaunch.tune.model import FAILED, OK, OUT_OF_MEMORY, PROFILE, TRIAL, Candidate, Experiment, Result, Settings
from ranklaunch.tune.search import Search

MICROS = [1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 28, 32, 40, 48, 64]


@dataclass(frozen=True)
class Landscape:
    """speed: samples a second. need, limit: GiB of a device. noise: how far measurements are apart, as a part of their values."""

    config: Mapping[str, Any]
    speed: Callable[[Candidate], float]
    need: Callable[[Candidate], float]
    limit: float
    ranks: int = 8
    noise: float = 0.02

    def settings(self, tuner: str, seed: int = 0, trials: int = 9999, early: int = 0, **more: Any) -> Settings:
        options = {"--tuner": tuner, "--max-trials": trials, "--early-stop": early}
        return settled(self.config, (), 1, self.ranks, options, seed=seed, **{"confirm": False, **more})

    def result(self, search: Search, experiment: Experiment) -> Result:
        if experiment.kind == PROFILE:
            return Result(PROFILE, PROFILE, FAILED)
        candidate = next(each for each in search.space if experiment.name.endswith(each.name))
        if self.need(candidate) > self.limit:
            return Result(experiment.name, experiment.kind, OUT_OF_MEMORY, reason="rank 0 was out of memory")
        speed = self.speed(candidate) * math.exp(self.noise * normal(f"{search.settings.seed}{experiment.name}"))
        batch = candidate.config["train_batch_size"]
        return Result(experiment.name, experiment.kind, OK, {"throughput": speed, "latency": batch / speed, "flops": speed * 1e9})

    def optimum(self) -> Candidate:
        space = Search(self.settings("gridsearch")).space
        return max((each for each in space if not each.reserve and self.need(each) <= self.limit), key=self.speed)

    def trials_until(self, name: str, tuner: str, seed: int) -> int:
        """0 where the search ends without it."""
        search, count = Search(self.settings(tuner, seed)), 0
        for experiment in experiments(search, self):
            count += experiment.kind == TRIAL
            if experiment.name == name:
                return count
        return 0


def normal(text: str) -> float:
    """A number of the normal distribution, always the same for a text."""
    digest = hashlib.sha256(text.encode()).digest()
    one, other = (int.from_bytes(digest[at : at + 8], "big") / 2**64 for at in (0, 8))
    return math.sqrt(-2 * math.log(one or 0.5)) * math.cos(2 * math.pi * other)


def experiments(search: Search, landscape: Landscape) -> Sequence[Experiment] | Any:
    """One at a time until the search is over, each with its result."""
    while not search.over:
        for experiment in search.next(1):
            yield experiment
            search.tell(landscape.result(search, experiment))


def by_micro(each: Candidate) -> float:
    stage = [0.9, 1.0, 1.12, 1.02][each.stage]
    return 1000 * stage * each.micro / (each.micro + 6) * (1 - 0.12 * max(0.0, math.log2(each.micro / 16))) * (0.97 if each.offload else 1)


def states(each: Candidate) -> float:
    return [24, 14, 10, 6][each.stage] * (0.4 if each.offload else 1) + each.micro * 0.8


def by_batch(each: Candidate) -> float:
    """The batch of all is given: small micro-batches are many, large ones are slow."""
    samples = each.micro * each.steps
    step = 0.012 * each.steps + 0.004 * samples * (1 + 0.3 * max(0.0, each.micro / 24 - 1))
    return (
        samples
        * 8
        / (0.02 + step + [0.12, 0.09, 0.04, 0.05][each.stage] + 0.04 * each.steps * (each.stage == 3) + 0.03 * bool(each.offload))
    )


def by_buckets(each: Candidate) -> float:
    size = math.log10(each.others["zero_optimization.reduce_bucket_size"])
    overlap = (1.06 if each.stage > 1 else 0.98) if each.others["zero_optimization.overlap_comm"] else 1
    return 1000 * [0.8, 0.9, 1.05, 0.9][each.stage] * each.micro / (each.micro + 10) * (1 - 0.05 * (size - 8.2) ** 2) * overlap


ALL = {"stage": "all"}
LANDSCAPES = {
    "micro-batches": Landscape({"train_micro_batch_size_per_gpu": MICROS, "zero_optimization": ALL}, by_micro, states, 40),
    "offload": Landscape(
        {"train_micro_batch_size_per_gpu": MICROS, "zero_optimization": {**ALL, "offload_optimizer": "auto"}}, by_micro, states, 20
    ),
    "one batch": Landscape(
        {"train_batch_size": 1536, "zero_optimization": {**ALL, "offload_optimizer": "auto"}},
        by_batch,
        lambda each: [20, 12, 9, 6][each.stage] * (0.6 if each.offload else 1) + each.micro * 0.6,
        40,
    ),
    "buckets": Landscape(
        {
            "train_micro_batch_size_per_gpu": [4, 12, 24, 48],
            "zero_optimization": {**ALL, "overlap_comm": [False, True], "reduce_bucket_size": [5e7, 2e8, 1e9]},
        },
        by_buckets,
        lambda each: [28, 18, 12, 8][each.stage] + each.micro * 0.6 * (1.1 if each.others["zero_optimization.overlap_comm"] else 1),
        32,
    ),
}
