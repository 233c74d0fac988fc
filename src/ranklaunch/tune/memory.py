"""Memory of a device for training, by the formulas of DeepSpeed's autotuner (get_instantiation_memory_required_per_gpu of
deepspeed/autotuning/autotuner.py), made for Adam. In bytes a parameter:

              half precision   single
parameters           2            4      of all ranks from stage 3 on
gradients            2            4      of all ranks from stage 2 on
optimizer           16            8      of all ranks from stage 1 on

"of all ranks": divided by the number of ranks. Everything is divided by the ranks that share a model. States
on the host are not counted. The formulas lack buffers for communication, losses of the allocator and the
context of the device: the profile run shows the sum of these as a fixed overhead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ranklaunch.tune.model import Candidate, Settings

OPTIMIZER_STAGE, GRADIENTS_STAGE, PARAMETERS_STAGE = 1, 2, 3
BUCKETS = ("reduce_bucket_size", "allgather_bucket_size")
BUCKET = 500_000_000  # elements, DeepSpeed's default of both
SINGLE = 4  # bytes of a number in single precision, in which models are made
SLACK = 1.05  # DeepSpeed tries micro-batches up to this factor above the calculated largest
GIB = 1024**3


@dataclass(frozen=True)
class Need:
    """Needed bytes of one device. activation: bytes of one sample of the micro-batch."""

    parameters: float = 0.0
    gradients: float = 0.0
    optimizer: float = 0.0
    overhead: float = 0.0
    activation: float = 0.0

    @property
    def states(self) -> float:
        return self.parameters + self.gradients + self.optimizer

    @property
    def least(self) -> float:
        """Return the needed bytes without any sample."""
        return self.states + self.overhead


def states(num_params: float, stage: int, ranks: int, mp_size: int = 1, half: bool = False) -> Need:
    """Return the bytes of the states on one device. num_params: of the whole model. ranks: all of the job, those that share a model too."""
    parameters = num_params * (2 if half else 4)
    gradients = num_params * (2 if half else 4)
    optimizer = num_params * (16 if half else 8)
    if stage >= OPTIMIZER_STAGE:
        optimizer = optimizer / ranks
    if stage >= GRADIENTS_STAGE:
        gradients = gradients / ranks
    if stage >= PARAMETERS_STAGE:
        parameters = parameters / ranks
    return Need(parameters / mp_size, gradients / mp_size, optimizer / mp_size)


def is_half(config: Mapping[str, Any]) -> bool:
    """Return True for fp16 and bf16, which need equal memory; DeepSpeed's autotuner reads only fp16."""
    sections = (config.get("fp16"), config.get("bf16"), config.get("bfloat16"))
    return any(isinstance(section, Mapping) and section.get("enabled") is True for section in sections)


def needed(settings: Settings, info: Mapping[str, float], candidate: Candidate) -> Need | None:
    """Return the needed memory of a candidate, None without a known number of parameters."""
    count = info.get("num_params", 0)
    if not count:
        return None
    need = states(count, candidate.stage, settings.ranks, settings.mp_size, is_half(candidate.config))
    optimizer, parameters = _devices(candidate.offload if settings.device != "cpu" else "")
    return Need(
        parameters=0.0 if _is_away(parameters) else need.parameters,
        gradients=need.gradients,
        optimizer=0.0 if _is_away(optimizer) else need.optimizer,
        overhead=overhead(settings, info),
        activation=0.0 if settings.device == "cpu" else max(0.0, info.get("activation_mem_per_gpu", 0)),
    )


def _is_away(device: str) -> bool:
    return device not in ("", "none")


def overhead(settings: Settings, info: Mapping[str, float]) -> float:
    """Return the bytes of the profile run beyond the states of its stage and its one sample, 0 if
    unknown. info: "overhead" itself; or "peak", the most used bytes of a device, and the "stage" of
    the run; or, on CPUs, "begun", the bytes of a rank's process with the model, before training."""
    if "overhead" in info:
        return max(0.0, info["overhead"])
    count = info.get("num_params", 0)
    if settings.device == "cpu" and info.get("begun"):
        return max(0.0, info["begun"] - SINGLE * count / settings.mp_size)
    if not info.get("peak") or not count:
        return 0.0
    profiled = states(count, int(info.get("stage", PARAMETERS_STAGE)), settings.ranks, settings.mp_size, is_half(settings.config))
    return max(0.0, info["peak"] - profiled.states - info.get("activation_mem_per_gpu", 0))


def refusal(settings: Settings, info: Mapping[str, float], candidate: Candidate) -> str:
    """Return the reason for which a candidate cannot fit, "" if it may fit."""
    need = needed(settings, info, candidate)
    if need is None or not settings.memory:
        return ""
    if settings.memory <= need.least:
        beside = f" and {shown(need.overhead)} beside them" if need.overhead else ""
        kept = f" with {candidate.offload} offload" if candidate.offload else ""
        return f"stage {candidate.stage}{kept} needs {shown(need.states)} for its states{beside}, a device has {shown(settings.memory)}"
    most = largest_micro(settings, need)
    if most is not None and candidate.micro > most * SLACK:
        free = f"{shown(settings.memory - need.least)} for samples of {shown(need.activation)}"
        return f"stage {candidate.stage} leaves {free}: a micro-batch of {most} at most"
    return ""


def largest_micro(settings: Settings, need: Need) -> int | None:
    """Return the largest micro-batch that fits, None if the memory of a sample or of the device is unknown."""
    if not settings.memory or not need.activation:
        return None
    return int((settings.memory - need.least) // need.activation)


def needs_no_less(settings: Settings, info: Mapping[str, float], one: Candidate, failed: Candidate) -> bool:
    """Return True if candidate `one` cannot fit because `failed` did not: the micro-batch of `one` is no smaller, and
    `one` divides or offloads no state that `failed` holds whole. A lower stage needs no buckets, so a small model may
    fit only there."""
    if one.micro < failed.micro or not _has_no_more_offload(one.offload, failed.offload):
        return False
    if one.stage == failed.stage:
        return True
    need, limit = needed(settings, info, one), needed(settings, info, failed)
    return one.stage < failed.stage and need is not None and limit is not None and need.states >= limit.states + buckets(failed.config)


def _has_no_more_offload(one: str, failed: str) -> bool:
    pairs = zip(_devices(one), _devices(failed))
    return all(not _is_away(device) or device == other for device, other in pairs)


def _devices(offload: str) -> tuple[str, str]:
    optimizer, _, parameters = offload.partition("+")
    return optimizer or "none", parameters or "none"


def buckets(config: Mapping[str, Any]) -> float:
    section = config.get("zero_optimization")
    settings = section if isinstance(section, Mapping) else {}
    sizes = [settings.get(name, BUCKET) for name in BUCKETS]
    return sum(size if isinstance(size, (int, float)) and 0 <= size < GIB * GIB else BUCKET for size in sizes) * (
        2 if is_half(config) else 4
    )


def shown(size: float) -> str:
    """Return bytes in the largest fitting binary unit."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
