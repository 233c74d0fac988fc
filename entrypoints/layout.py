"""ranklaunch layout: show Megatron's groups of ranks, and the node and the layers of each rank; starts nothing."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping

from ranklaunch.cli import options
from ranklaunch.cli.options import Option
from ranklaunch.env import parse
from ranklaunch.errors import ConfigError
from ranklaunch.layout.model import Picture, document
from ranklaunch.layout.svg import drawn
from ranklaunch.layout.text import lines
from ranklaunch.plan.megatron import ORDER, Layout, Stages

USAGE = "ranklaunch layout --world-size N [--tp T] [--pp P] [OPTIONS]"
FORMAT = options.of_formats("text", "json", "svg")
OPTIONS = (
    Option("--world-size", "world_size", "ranks of the job"),
    Option("--tp", "tp", "tensor parallelism: ranks that share each layer (default: 1)"),
    Option("--pp", "pp", "pipeline parallelism: ranks that divide the layers (default: 1)"),
    Option("--cp", "cp", "context parallelism: ranks that share each sequence (default: 1)"),
    Option("--ep", "ep", "expert parallelism: ranks that divide the experts (default: 1)"),
    Option("--expert-tp", "expert_tp", "tensor parallelism of experts (default: as --tp)"),
    Option("--order", "order", f"order of the kinds of parallelism; the first changes fastest from rank to rank (default: {ORDER})"),
    Option("--slots", "slots", "ranks of each node: one number, or one for each node (default: 8, or all if there are fewer)"),
    Option("--num-layers", "layers", "layers of the model, to divide between the stages of a pipeline"),
    Option("--virtual-stages", "chunks", "virtual stages of each rank (default: 1)"),
    Option("--first-stage-layers", "first", "layers of the first stage, if their number differs from the other stages"),
    Option("--last-stage-layers", "last", "layers of the last stage, if their number differs from the other stages"),
    FORMAT,
)
PARSER = options.Parser("layout", __doc__ or "", USAGE, OPTIONS)
DIGITS = frozenset(ORDER.split("-"))
MOST_RANKS = 1_048_576


def main(argv: list[str], env: Mapping[str, str], signals: object = None) -> int:
    pairs, words = PARSER.split(argv)
    values = dict(pairs)
    if words:
        PARSER.refuse(f"{words[0]!r}: expected only options")
    form = options.chosen(values, FORMAT, f"\nusage: {USAGE}")
    sys.stdout.write(_shown(_picture(values), form))
    return 0


def _picture(values: Mapping[str, str]) -> Picture:
    if "world_size" not in values:
        PARSER.refuse("no --world-size given")
    world = _number(values, "world_size", 0)
    sizes = {name: _number(values, name, 1) for name in ("tp", "pp", "cp", "ep")}
    layout = Layout(world, **sizes, etp=_number(values, "expert_tp", 0), order=_order(values.get("order", ORDER)))
    stages = _stages(values, layout.pp)
    slots = _slots(values.get("slots", ""), world)
    problems = [*layout.problems(), *(stages.problems() if stages else ())]
    if sum(slots) != world:
        problems.append(f"--slots {values['slots']}: these nodes have {sum(slots)} ranks in all, expected {world} (--world-size)")
    if problems:
        raise ConfigError(problems)
    return Picture(layout, slots, stages)


def _stages(values: Mapping[str, str], pp: int) -> Stages | None:
    parts = [name for name in ("chunks", "first", "last") if name in values]
    if "layers" not in values:
        if parts:
            PARSER.refuse(f"{_name(parts[0])} divides layers: give --num-layers too")
        return None
    first, last = (_number(values, name, 0) if name in values else None for name in ("first", "last"))
    return Stages(_number(values, "layers", 0), pp, _number(values, "chunks", 1), first, last)


def _slots(text: str, world: int) -> tuple[int, ...]:
    """Return the slots of each node. A single number holds for as many nodes as the ranks need."""
    try:
        numbers = [parse.positive(word) for word in (text or str(min(8, world))).split(",")]
    except ValueError as error:
        PARSER.refuse(f"--slots {text}: {error}")
    if len(numbers) > 1 or not text:
        return tuple(numbers) if len(numbers) > 1 else _even(world, numbers[0])
    if world % numbers[0]:
        msg = f"--slots {text}: {world} ranks do not fill whole nodes; give one number for each node, such as 8,8,4"
        raise ConfigError(msg)
    return _even(world, numbers[0])


def _even(world: int, slots: int) -> tuple[int, ...]:
    """Return the slots of each node; the last node has the remaining ranks."""
    whole, rest = divmod(world, slots)
    return (*[slots] * whole, *([rest] if rest else []))


def _order(text: str) -> str:
    if frozenset(text.split("-")) != DIGITS or len(text.split("-")) != len(DIGITS):
        PARSER.refuse(f"--order {text}: expected {', '.join(sorted(DIGITS))} in the order wanted, such as {ORDER}")
    return text


def _number(values: Mapping[str, str], name: str, default: int) -> int:
    if name not in values:
        return default
    try:
        return parse.whole(values[name], 1, MOST_RANKS)
    except ValueError as error:
        return PARSER.refuse(f"{_name(name)} {values[name]}: {error}")


def _name(value: str) -> str:
    return next(option.name for option in OPTIONS if option.value == value)


def _shown(picture: Picture, form: str) -> str:
    if form == "json":
        members = (f" {json.dumps(name)}: {json.dumps(value)}" for name, value in document(picture).items())  # a line for each member
        return "{\n" + ",\n".join(members) + "\n}\n"
    if form == "svg":
        return drawn(picture)
    return "".join(f"{line}\n" for line in lines(picture))
