"""Candidates of a search: all combinations of stage, offload, micro-batch, accumulation and the user's lists
with matching batch sizes.

- A stage as a number is fixed, a list is tried; without a stage, all stages are tried.
- A micro-batch as a number is tried among others, as by DeepSpeed's own tuner; of a list, only the
  values of the list are tried.
- A train_batch_size as a number is fixed: another one changes the result of the training.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ranklaunch.errors import ConfigError
from ranklaunch.fields import names
from ranklaunch.plan.ds_config import MICRO, STEPS, TRAIN
from ranklaunch.tune import words
from ranklaunch.tune.autotuning import MOST, is_whole, shown
from ranklaunch.tune.model import Candidate, Settings

ZERO = "zero_optimization"
STAGES = (0, 1, 2, 3)
ALL_STAGES = (None, "auto", "all")  # values that mean all stages
OPTIMIZER, PARAMETERS = "offload_optimizer", "offload_param"
LEAST_STAGE = {OPTIMIZER: 1, PARAMETERS: 3}  # lowest stage of each kind of offload
DEVICES = ("none", "cpu", "nvme")
MOST_MICRO = 1024  # DeepSpeed's default
MOST_CANDIDATES = 10_000
MOST_TRIED = 1_000_000  # combinations of batch sizes, of which not all are valid
# Sections in which DeepSpeed itself has lists: a list is one value there, and a list of lists has several values.
WITH_LISTS = (
    "optimizer.params", "scheduler", "sparse_attention", "curriculum_learning", "data_efficiency", "compression_training", "comms_logger",
    "elasticity", "quantize_training", "progressive_layer_drop", "hybrid_engine", "nebula", "zero_optimization.leaf_module",
    "zero_optimization.zenflow", "tensor_parallel", "monitor_config", "checkpoint", "flops_profiler", "weight_quantization",
)  # fmt: skip
# Values that DeepSpeed's tuner tries only outside its fast mode (DEFAULT_TUNING_SPACE_ZERO_* of deepspeed/autotuning/constants.py).
_BUCKETS = {"reduce_bucket_size": [5e7, 5e8, 1e9], "allgather_bucket_size": [5e7, 5e8, 1e9]}
_SWITCHES = {"overlap_comm": [True, False], "reduce_scatter": [False, True], "contiguous_gradients": [False, True]}
BEYOND_FAST: dict[int, dict[str, list[Any]]] = {
    0: {}, 1: _BUCKETS, 2: {**_SWITCHES, **_BUCKETS}, 3: {**_SWITCHES, "allgather_partitions": [True, False], **_BUCKETS},
}  # fmt: skip


@dataclass(frozen=True)
class Sizes:
    """Consistent batch sizes: train = micro x steps x data-parallel ranks."""

    micro: int
    steps: int
    train: int


@dataclass(frozen=True)
class Offload:
    """Sections of the configuration for the offload of the optimizer's states and of the parameters; None: on the device."""

    optimizer: Mapping[str, Any] | None = None
    parameters: Mapping[str, Any] | None = None

    @property
    def name(self) -> str:
        optimizer, parameters = (each["device"] if each else "none" for each in (self.optimizer, self.parameters))
        return f"{optimizer}+{parameters}" if self.parameters else optimizer if self.optimizer else ""


def candidates(settings: Settings) -> tuple[Candidate, ...]:
    """Return all candidates in the order of a grid search: by stage, offload, the user's lists, micro-batch. Raises ConfigError."""
    problems: list[str] = []
    stages, offloads = _stages(settings, problems), _offloads(settings, problems)
    lists, sizes = list(_lists(settings.config, problems)), _sizes(settings, problems)
    if problems:
        raise ConfigError(problems)
    many = sum(_count(settings, stage, lists) * len(offloads) * len(sizes) for stage in stages)
    if many > MOST_CANDIDATES:
        msg = f"{many} candidates: expected at most {MOST_CANDIDATES}; make the lists of the configuration shorter"
        raise ConfigError(msg)
    made = [made for stage in stages for each in offloads for made in _of_stage(settings, stage, each, lists, sizes)]
    if not made:
        listed = ", ".join(map(str, stages))
        msg = f"{ZERO}: no stage of {listed} allows this offload: {OPTIMIZER} needs stage 1 or higher, {PARAMETERS} stage 3"
        raise ConfigError(msg)
    return (*made, *_reserve(settings, stages, lists, sizes))


def _reserve(settings: Settings, stages: Sequence[int], lists: Sequence[Any], sizes: Sequence[Sizes]) -> Iterator[Candidate]:
    """Yield candidates with the optimizer's states on the host, unless the user sets offload. These are
    slower, and only for models that fit in no other way."""
    is_set = any(key in _zero(settings) for key in (OPTIMIZER, PARAMETERS, "cpu_offload"))
    if is_set or max(stages) < LEAST_STAGE[OPTIMIZER] or settings.device == "cpu":
        return
    to_host = Offload({"device": "cpu"})
    for made in _of_stage(settings, max(stages), to_host, lists, sizes):
        yield Candidate(**{name: getattr(made, name) for name in names(Candidate) if name != "reserve"}, reserve=True)


def _of_stage(settings: Settings, stage: int, offload: Offload, lists: Sequence[Any], sizes: Sequence[Sizes]) -> Iterator[Candidate]:
    if (offload.optimizer and stage < LEAST_STAGE[OPTIMIZER]) or (offload.parameters and stage < LEAST_STAGE[PARAMETERS]):
        return
    dimensions = [*lists, *_beyond_fast(settings, stage)]
    for values in itertools.product(*(values for _, values in dimensions)):
        others = {path: value for (path, _), value in zip(dimensions, values)}
        for size in sizes:
            yield _candidate(settings, stage, offload, others, size)


def _candidate(settings: Settings, stage: int, offload: Offload, others: Mapping[str, Any], size: Sizes) -> Candidate:
    config = json.loads(json.dumps(settings.config))
    config[ZERO] = {**_zero(settings), "stage": stage}
    for key, section in ((OPTIMIZER, offload.optimizer), (PARAMETERS, offload.parameters)):
        config[ZERO].pop(key, None)
        if section:
            config[ZERO][key] = dict(section)
    config |= {TRAIN: size.train, MICRO: size.micro, STEPS: size.steps}
    for path, value in others.items():
        _put(config, path, value)
    name = f"z{stage}_mbs{size.micro}_gas{size.steps}" + (f"_off-{offload.name.replace('+', '-')}" if offload.name else "")
    sections = ((OPTIMIZER, offload.optimizer), (PARAMETERS, offload.parameters))
    more = {**others, **{key: each for key, each in sections if _is_more(each)}}
    return Candidate(f"{name}_{digest(more)}" if more else name, stage, size.micro, size.steps, offload.name, dict(others), config)


def _is_more(section: Mapping[str, Any] | None) -> bool:
    """Return True for a section with more than the device: the device alone is in the candidate's name already."""
    return bool(section) and set(section or ()) != {"device"}


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:8]


def _put(config: dict[str, Any], path: str, value: Any) -> None:
    *parts, last = path.split(".")
    for part in parts:
        section = config.get(part)
        config[part] = dict(section) if isinstance(section, Mapping) else {}
        config = config[part]
    config[last] = value


def _zero(settings: Settings) -> Mapping[str, Any]:
    section = settings.config.get(ZERO)
    return section if isinstance(section, Mapping) else {}


def _stages(settings: Settings, problems: list[str]) -> tuple[int, ...]:
    section = settings.config.get(ZERO)
    if section is not None and not isinstance(section, (Mapping, bool)):
        problems.append(f'{ZERO} {shown(section)}: expected an object such as {{"stage": [1, 2]}}')
    stage = _zero(settings).get("stage")
    values = stage if isinstance(stage, list) else [stage]
    named = [value for value in values if value not in ALL_STAGES]
    if not all(is_whole(value, 0) and value in STAGES for value in named):
        problems.append(f'{ZERO}.stage {shown(stage)}: expected 0, 1, 2, 3, a list of these, or "auto" for all of them')
        return STAGES
    return tuple(sorted(set(named))) if values and named == values else STAGES


def _offloads(settings: Settings, problems: list[str]) -> list[Offload]:
    """Return the combinations of offload, the least offload first."""
    optimizer, parameters = (_offload_sections(settings, key, problems) for key in (OPTIMIZER, PARAMETERS))
    offloads = [Offload(one, other) for other in parameters for one in optimizer]
    return sorted(offloads, key=lambda each: (bool(each.optimizer) + bool(each.parameters), each.name))


def _offload_sections(settings: Settings, key: str, problems: list[str]) -> list[Mapping[str, Any] | None]:
    """Return the sections to try for one kind of offload; None: on the device. key: OPTIMIZER or PARAMETERS."""
    offload = _zero(settings).get(key)
    values = [None, "cpu"] if offload == "auto" else offload if isinstance(offload, list) else [offload]
    made: list[Mapping[str, Any] | None] = []
    for value in values or [None]:
        section = {"device": value} if isinstance(value, str) else value
        wrong = _wrong_offload(section)
        if wrong:
            problems.append(f"{ZERO}.{key} {shown(value)}: {wrong}")
        elif not section or section["device"] == "none":
            made.append(None)
        else:
            made.append(section)
    return _unique(made)


def _wrong_offload(section: Any) -> str:
    if section is None or section is False:
        return ""
    if not isinstance(section, Mapping) or section.get("device") not in DEVICES:
        return f'expected an object with a device of {", ".join(DEVICES)}, such as {{"device": "cpu"}}, a list of these, or "auto"'
    path = section.get("nvme_path")
    return "" if section["device"] != "nvme" or (isinstance(path, str) and path) else "expected nvme_path beside the device"


def _unique(values: Sequence[Any]) -> list[Any]:
    return list({json.dumps(value, sort_keys=True): value for value in values}.values())


def _lists(config: Mapping[str, Any], problems: list[str], above: str = "") -> Iterator[tuple[str, list[Any]]]:
    """Yield (path, values) of each of the user's lists of several values."""
    for key, value in config.items():
        path = f"{above}{key}"
        if path in (TRAIN, MICRO, STEPS, f"{ZERO}.stage", f"{ZERO}.{OPTIMIZER}", f"{ZERO}.{PARAMETERS}"):
            continue
        if isinstance(value, Mapping):
            yield from _lists(value, problems, f"{path}.")
        elif isinstance(value, list) and _is_several(path, value):
            if "." in key:
                problems.append(f"{path}: a key with a dot cannot have several values")
            if not value:
                problems.append(f"{path} []: expected at least one value to try")
            yield path, _unique(value)


def _is_several(path: str, value: list[Any]) -> bool:
    has_lists = any(path == section or path.startswith(f"{section}.") for section in WITH_LISTS)
    return not has_lists or (bool(value) and all(isinstance(item, list) for item in value))


def _beyond_fast(settings: Settings, stage: int) -> list[tuple[str, list[Any]]]:
    if settings.fast:
        return []
    return [(f"{ZERO}.{key}", values) for key, values in BEYOND_FAST[stage].items() if key not in _zero(settings)]


def _count(settings: Settings, stage: int, lists: Sequence[tuple[str, list[Any]]]) -> int:
    count = 1
    for _, values in (*lists, *_beyond_fast(settings, stage)):
        count *= len(values)
    return count


def _sizes(settings: Settings, problems: list[str]) -> list[Sizes]:
    """Return all allowed sizes: train = micro x steps x replicas."""
    allowed = {key: _numbers(settings, key, problems) for key in (TRAIN, MICRO, STEPS)}
    if problems:
        return []
    replicas = settings.replicas
    uneven = [train for train in allowed[TRAIN] if train % replicas]
    if uneven:
        problems.append(f"{TRAIN} {uneven[0]}: expected a multiple of {replicas}, the number of data-parallel ranks")
        return []
    micros = _micros(settings, allowed)
    made: set[Sizes] = set()
    tried = (size for micro in micros for size in _with_micro(settings, micro, allowed))
    for number, size in enumerate(tried):
        made.update([size] if _is_allowed(settings, size) else [])
        if len(made) > MOST_CANDIDATES or number > MOST_TRIED:
            problems.append(f"more than {MOST_CANDIDATES} batch sizes are to be tried: make the lists of the configuration shorter")
            return []
    if not made:
        asked = ", ".join(f"{key} {' or '.join(map(str, numbers[:8]))}" for key, numbers in allowed.items() if numbers)
        limits = ", ".join(f"{key} {value}" for key, value in settings.section.items() if key.startswith(("min_", "max_")))
        reasons = "; ".join(filter(None, (asked, limits)))
        problems.append(f"no batch sizes fit: {reasons}: {TRAIN} is {MICRO} x {STEPS} x {replicas} data-parallel ranks")
    return sorted(made, key=lambda size: (size.micro, size.steps))


def _numbers(settings: Settings, key: str, problems: list[str]) -> list[int]:
    """Return the user's values of a batch size, [] if any value may be tried."""
    number = settings.config.get(key)
    if number in (None, "auto") and not isinstance(number, list):
        option = settings.arg_mappings.get(key, "")
        text = words.value(settings.words, option) if option else ""
        number = int(text) if text.isascii() and text.isdigit() and len(text) < 12 else None
        return [number] if number else []
    values = number if isinstance(number, list) else [number]
    if not values or not all(is_whole(value, 1) for value in values):
        problems.append(f'{key} {shown(number)}: expected a whole number from 1 on, a list of these, or "auto"')
        return []
    return sorted(set(values))


def _micros(settings: Settings, allowed: Mapping[str, list[int]]) -> list[int]:
    if isinstance(settings.config.get(MICRO), list):
        return allowed[MICRO]
    low = settings.section.get("min_train_micro_batch_size_per_gpu", 1)
    high = settings.section.get("max_train_micro_batch_size_per_gpu", max(low, MOST_MICRO))
    if allowed[TRAIN]:
        shares = [train // settings.replicas for train in allowed[TRAIN]]
        return sorted({micro for share in shares for micro in range(low, min(high, share, MOST_MICRO * 64) + 1) if share % micro == 0})
    most = settings.section.get("max_train_batch_size", MOST) // settings.replicas // min(allowed[STEPS] or [1])
    high = min(high, most)
    count = settings.section.get("num_tuning_micro_batch_sizes", 0)
    sizes = _spread(low, high, count) if count else [1 << power for power in range(high.bit_length()) if low <= 1 << power <= high]
    return sorted({*sizes, *(micro for micro in allowed[MICRO] if low <= micro <= high), *([low] if low <= high else [])})


def _spread(low: int, high: int, count: int) -> list[int]:
    """Return `count` sizes from low to high, with equal factors between them."""
    if count < 2 or high <= low:
        return [high] if high >= low else []
    count = min(count, high - low + 1, 256)
    return sorted({round(low * (high / low) ** (number / (count - 1))) for number in range(count)})


def _with_micro(settings: Settings, micro: int, allowed: Mapping[str, list[int]]) -> Iterator[Sizes]:
    unit = micro * settings.replicas
    trains, steps = allowed[TRAIN], allowed[STEPS]
    if trains:
        known = frozenset(steps)
        yield from (Sizes(micro, train // unit, train) for train in trains if train % unit == 0 and (not steps or train // unit in known))
    else:
        yield from (Sizes(micro, count, unit * count) for count in steps or _accumulations(settings, unit))


def _accumulations(settings: Settings, unit: int) -> list[int]:
    """Return 1 and, if the user limits the batch, powers of two up to the limit. Without a limit, only 1: more steps are always faster,
    but change the result of the training."""
    most = settings.section.get("max_train_batch_size", 0) // unit
    return [1 << power for power in range(max(1, most.bit_length()))]


def _is_allowed(settings: Settings, size: Sizes) -> bool:
    section = settings.section
    micros = (section.get("min_train_micro_batch_size_per_gpu", 1), section.get("max_train_micro_batch_size_per_gpu", MOST))
    trains = (section.get("min_train_batch_size", 1), section.get("max_train_batch_size", MOST))
    return bool(micros[0] <= size.micro <= micros[1] and trains[0] <= size.train <= trains[1])
