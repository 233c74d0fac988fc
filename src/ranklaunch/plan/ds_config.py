"""Check of a program's DeepSpeed configuration: its batch sizes must fit the job's ranks.

DeepSpeed itself checks them only after all ranks have loaded their data. train_batch_size must be train_micro_batch_size_per_gpu x
gradient_accumulation_steps x the number of ranks with different data. A missing or "auto" value follows from the rest.
"""

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
# Arguments and keys of programs that split their model or their sequences: fewer ranks then have different data.
_SPLITS = re.compile(r"(?i)parallel|pipe|stages|autotp|(?<![a-z])(tp|pp|mp|sp|cp)(?![a-z])")
# A text or comment without an end, as in a half-written file, reaches to the end of the file: the match needs no second try at each quote.
_TEXT = r'("(?:[^"\\]|\\.)*(?:"|\\?\Z))'
_BESIDE_DATA = re.compile(rf"{_TEXT}|//[^\n]*|#[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_LAST_COMMA = re.compile(rf"{_TEXT}|,(?=\s*[}}\]])", re.DOTALL)


@dataclass(frozen=True)
class Found:
    """Problem of a configuration. certain: DeepSpeed will refuse it, unless the program changes the numbers by itself."""

    text: str
    certain: bool


def loads(text: str) -> Any:
    """Return the content of a DeepSpeed configuration: JSON with comments, and with commas after the last item. Raises ValueError.

    DeepSpeed's own reader accepts more forms.
    """
    bare = _BESIDE_DATA.sub(lambda match: match[1] or " ", text)
    return json.loads(_LAST_COMMA.sub(lambda match: match[1] or "", bare))


def path_of(args: Sequence[str]) -> str:
    """Return the path of the configuration in the program's arguments, "" without one."""
    values = (value for name in _NAMED for value in user_options.AS_WRITTEN.values(args, name))
    return next((value for value in values if value and not value.startswith("-")), "")


def judged(job: Job, files: Files, cwd: str) -> Found | None:
    """Return the problem of the batch sizes; None if they fit or cannot be checked."""
    path = path_of(job.program.args)
    config = _config(absolute(path, job.folder or cwd), files) if path else {}
    numbers = {name: config[name] for name in (TRAIN, MICRO, STEPS) if type(config.get(name)) is int}
    too_small = [f"{name} is {number}" for name, number in numbers.items() if number < 1]
    if too_small:
        return Found(f"{clipped(path)}: {too_small[0]}: expected at least 1", True)
    ranks = _with_own_data(job.world_size, config)
    if not ranks or TRAIN not in numbers or fits(numbers, ranks):
        return None
    split = _split(numbers, ranks) if _may_split(job.program.args, config) else 0
    unless = f", unless the program splits its model over {split} ranks" if split else ""
    return Found(f"{clipped(path)}: {_contradiction(numbers, ranks)}{unless}: {_remedy(numbers, ranks)}", not split)


def _config(path: str, files: Files) -> Mapping[str, Any]:
    """Return a configuration, empty if it cannot be read, or if DeepSpeed makes its batch sizes itself (elasticity)."""
    try:
        config = loads(files.text(path, MOST_BYTES) or "{}")
    except (ValueError, RecursionError):
        return {}
    return config if isinstance(config, dict) and not _is_elastic(config) else {}


def _is_elastic(config: Mapping[str, Any]) -> bool:
    """Return True if DeepSpeed computes the batch sizes itself."""
    elasticity = config.get("elasticity")
    return isinstance(elasticity, dict) and bool(elasticity.get("enabled"))


def _with_own_data(ranks: int, config: Mapping[str, Any]) -> int:
    """Return the number of ranks with different data, 0 if it is unknown."""
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
    """Return the smallest batch of all ranks. train_batch_size must be a multiple of it, or equal to it if all three sizes are given."""
    return numbers.get(MICRO, 1) * numbers.get(STEPS, 1) * ranks


def fits(numbers: Mapping[str, int], ranks: int) -> bool:
    unit = _unit(numbers, ranks)
    return numbers[TRAIN] == unit if len(numbers) == len((TRAIN, MICRO, STEPS)) else numbers[TRAIN] % unit == 0


def _split(numbers: Mapping[str, int], ranks: int) -> int:
    """Return the number of ranks that would have to share a model for the numbers to fit; 0 if no number fits."""
    return next((parts for parts in range(2, ranks + 1) if ranks % parts == 0 and fits(numbers, ranks // parts)), 0)


def _contradiction(numbers: Mapping[str, int], ranks: int) -> str:
    factors = [f"{name} {numbers[name]}" for name in (MICRO, STEPS) if name in numbers]
    product = " x ".join((*factors, counted(ranks, "rank")))
    unit = _unit(numbers, ranks)
    if len(factors) == 2:
        return f"{TRAIN} {numbers[TRAIN]} is not {product} = {unit}"
    return f"{TRAIN} {numbers[TRAIN]} is no multiple of {product}{f' = {unit}' if factors else ''}"


def _remedy(numbers: Mapping[str, int], ranks: int) -> str:
    """Return the nearest numbers that fit, with one number changed at a time."""
    unit, batch = _unit(numbers, ranks), numbers[TRAIN]
    below = batch // unit * unit
    near = [unit] if len(numbers) == len((TRAIN, MICRO, STEPS)) else [number for number in (below, below + unit) if number]
    remedies = [f"{TRAIN} {' or '.join(map(str, near))}"]
    for name in (MICRO, STEPS):
        rest = unit // numbers.get(name, 1)
        if name in numbers and batch % rest == 0:
            remedies.append(f"{name} {batch // rest}")
    return f"{', or '.join(remedies)} would fit"
