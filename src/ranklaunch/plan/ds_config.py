"""Check of a program's DeepSpeed configuration: its batch sizes must fit the job's ranks. DeepSpeed itself checks only after all ranks
have loaded their data. train_batch_size is train_micro_batch_size_per_gpu x gradient_accumulation_steps x the ranks with different
data; a missing or "auto" value follows from the rest."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ranklaunch.adapters.launchers.shared import user_options
from ranklaunch.env.job import Job
from ranklaunch.errors import counted
from ranklaunch.files import Files, absolute
from ranklaunch.showing import clipped

TRAIN, MICRO, STEPS = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"
MOST_BYTES = 1024 * 1024
_NAMED = ("--deepspeed_config", "--deepspeed")
# Words of arguments and keys by which a program says that it splits its model or its sequences: fewer ranks have different data then.
_SPLITS = re.compile(r"(?i)parallel|pipe|stages|autotp|(?<![a-z])(tp|pp|mp|sp|cp)(?![a-z])")
# What a file that is half written leaves open goes to its end: nothing is tried anew from each quote in it.
_TEXT = r'("(?:[^"\\]|\\.)*(?:"|\\?\Z))'
_BESIDE_DATA = re.compile(rf"{_TEXT}|//[^\n]*|#[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_LAST_COMMA = re.compile(rf"{_TEXT}|,(?=\s*[}}\]])", re.DOTALL)


@dataclass(frozen=True)
class Found:
    """certain: DeepSpeed refuses it, unless the program changes the numbers by itself."""

    text: str
    certain: bool


def loads(text: str) -> Any:
    """JSON with comments, and with commas behind the last item, as DeepSpeed takes it; not all that its reader takes. Raises ValueError."""
    bare = _BESIDE_DATA.sub(lambda match: match[1] or " ", text)
    return json.loads(_LAST_COMMA.sub(lambda match: match[1] or "", bare))


def path_of(args: Sequence[str]) -> str:
    """The file that the program's arguments name, "" where they name none."""
    values = (value for name in _NAMED for value in user_options.AS_WRITTEN.values(args, name))
    return next((value for value in values if value and not value.startswith("-")), "")


def judged(job: Job, files: Files, cwd: str) -> Found | None:
    """Return what is wrong with the batch sizes; None if nothing is, or if nothing can be said."""
    path = path_of(job.program.args)
    config = _config(absolute(path, job.folder or cwd), files) if path else {}
    numbers = {name: config[name] for name in (TRAIN, MICRO, STEPS) if type(config.get(name)) is int}
    below = [f"{name} is {number}" for name, number in numbers.items() if number < 1]
    if below:
        return Found(f"{clipped(path)}: {below[0]}: expected at least 1", True)
    ranks = _with_own_data(job.world_size, config)
    if not ranks or TRAIN not in numbers or fits(numbers, ranks):
        return None
    split = _split(numbers, ranks) if _may_split(job.program.args, config) else 0
    unless = f", unless the program splits its model over {split} ranks" if split else ""
    return Found(f"{clipped(path)}: {_told(numbers, ranks)}{unless}: {_remedy(numbers, ranks)}", not split)


def _config(path: str, files: Files) -> Mapping[str, Any]:
    """Return a configuration, empty if it cannot be read, or if DeepSpeed makes its batch sizes itself (elasticity)."""
    try:
        config = loads(files.text(path, MOST_BYTES) or "{}")
    except (ValueError, RecursionError):
        return {}
    return config if isinstance(config, dict) and not _is_elastic(config) else {}


def _is_elastic(config: Mapping[str, Any]) -> bool:
    """Then DeepSpeed makes the numbers itself."""
    elasticity = config.get("elasticity")
    return isinstance(elasticity, dict) and bool(elasticity.get("enabled"))


def _with_own_data(ranks: int, config: Mapping[str, Any]) -> int:
    """0 where that cannot be told."""
    sequence = config.get("sequence_parallel_size", 1)
    tensor = config.get("tensor_parallel", {})
    size = tensor.get("autotp_size", 1) if isinstance(tensor, dict) else 1
    if type(sequence) is not int or type(size) is not int or sequence < 1 or size < 0:
        return 0
    together = sequence * max(1, size)
    return ranks // together if ranks % together == 0 else 0


def _may_split(args: Sequence[str], config: Mapping[str, Any]) -> bool:
    return any(_SPLITS.search(word) for word in (*(arg for arg in args if arg.startswith("-")), *config))


def _unit(numbers: Mapping[str, int], ranks: int) -> int:
    """Number that the batch of all ranks must be a multiple of, or equal to if all three are given."""
    return numbers.get(MICRO, 1) * numbers.get(STEPS, 1) * ranks


def fits(numbers: Mapping[str, int], ranks: int) -> bool:
    unit = _unit(numbers, ranks)
    return numbers[TRAIN] == unit if len(numbers) == len((TRAIN, MICRO, STEPS)) else numbers[TRAIN] % unit == 0


def _split(numbers: Mapping[str, int], ranks: int) -> int:
    """Over how many ranks a model would have to be split so that they fit; 0: over no number."""
    return next((parts for parts in range(2, ranks + 1) if ranks % parts == 0 and fits(numbers, ranks // parts)), 0)


def _told(numbers: Mapping[str, int], ranks: int) -> str:
    factors = [f"{name} {numbers[name]}" for name in (MICRO, STEPS) if name in numbers]
    product = " x ".join((*factors, counted(ranks, "rank")))
    unit = _unit(numbers, ranks)
    if len(factors) == 2:
        return f"{TRAIN} {numbers[TRAIN]} is not {product} = {unit}"
    return f"{TRAIN} {numbers[TRAIN]} is no multiple of {product}{f' = {unit}' if factors else ''}"


def _remedy(numbers: Mapping[str, int], ranks: int) -> str:
    """The nearest numbers that fit, one changed at a time."""
    unit, batch = _unit(numbers, ranks), numbers[TRAIN]
    below = batch // unit * unit
    near = [unit] if len(numbers) == len((TRAIN, MICRO, STEPS)) else [number for number in (below, below + unit) if number]
    remedies = [f"{TRAIN} {' or '.join(map(str, near))}"]
    for name in (MICRO, STEPS):
        others = unit // numbers.get(name, 1)
        if name in numbers and batch % others == 0:
            remedies.append(f"{name} {batch // others}")
    return f"{', or '.join(remedies)} would fit"
