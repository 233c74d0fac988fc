"""Layout as an SVG picture: a row for each node, a field for each rank in the colour of its pipeline stage, a frame for each tp group.

Up to MOST_NUMBERED ranks, each field has the rank's number. With more ranks, consecutive ranks of one stage are one field, and a tooltip
names them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from xml.etree import ElementTree as ET

from ranklaunch.layout import text
from ranklaunch.layout.model import Picture

MOST_NUMBERED = 256  # ranks; pictures with more show no numbers
MOST_STAGES = 64  # stages in the legend
FIELD, NODE = 56, 70  # pixels: field of a rank; column with the names of nodes
SMALL, SMALL_NODES = 9, 170  # pixels, in pictures without numbers: field of a rank; column with the names of nodes
MARGIN, LINE, GAP = 16, 20, 14
KEY, KEYS_BESIDE = 320, 4  # pixels: entry of the legend; and number of entries in a line
WIDTH = 1400
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1a1a1a }
.title { font-weight: 600; font-size: 16px }
.small { font-size: 11px }
.ground { fill: #ffffff }
.node { fill: #eeeeee }
.group { fill: none; stroke: #1a1a1a; stroke-width: 1.5 }
@media (prefers-color-scheme: dark) {
  text { fill: #eeeeee }
  .ground { fill: #16181c }
  .node { fill: #2a2d33 }
  .group { stroke: #eeeeee }
}
text.on { fill: #101010 }
"""


def drawn(picture: Picture) -> str:
    """Return the SVG document."""
    numbered = picture.layout.world_size <= MOST_NUMBERED
    head = list(_head(picture, numbered))
    root = ET.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "role": "img", "aria-label": head[0]})
    ET.SubElement(root, "style").text = STYLE
    ground = _box(root, 0, 0, 0, 0, kind="ground")
    for number, line in enumerate(head):
        _text(root, MARGIN, MARGIN + LINE * (number + 1), line, "" if number else "title")
    width, height = (_numbered if numbered else _small)(root, picture, MARGIN + LINE * (len(head) + 1))
    for element in (root, ground):
        element.attrib.update(width=str(width), height=str(height))
    root.set("viewBox", f"0 0 {width} {height}")
    return ET.tostring(root, encoding="unicode") + "\n"


def _head(picture: Picture, numbered: bool) -> Iterator[str]:
    yield next(text.lines(picture))
    yield from (f"warning: {warning}" for warning in picture.warnings())
    frames = "a row is a node, a frame holds the ranks that share each layer (tp)"
    yield f"A colour is a stage of the pipeline; {frames if numbered else 'fields without a gap between them are one node'}."


def _numbered(root: ET.Element, picture: Picture, top: int) -> tuple[int, int]:
    left, step = MARGIN + NODE, FIELD + GAP
    for node, (first, slots) in enumerate(zip(picture.firsts, picture.slots)):
        y = top + node * step
        _text(root, MARGIN, y + FIELD // 2 + 4, f"node {node}")
        _box(root, left - 4, y - 4, slots * FIELD + 8, FIELD + 8, kind="node")
        for local in range(slots):
            _field(root, picture, first + local, left + local * FIELD, y)
        for start, end in _neighbours(picture, first, first + slots):
            _box(root, left + (start - first) * FIELD, y, (end - start) * FIELD, FIELD, kind="group")
    legend = left + max(picture.slots) * FIELD + 2 * MARGIN
    stages = min(picture.layout.pp, MOST_STAGES)
    for stage in range(stages):
        _key(root, picture, stage, legend, top + stage * LINE)
    return legend + KEY, top + max(len(picture.slots) * step, stages * LINE) + MARGIN


def _field(root: ET.Element, picture: Picture, rank: int, x: int, y: int) -> None:
    layout = picture.layout
    group = ET.SubElement(root, "g")
    ET.SubElement(group, "title").text = f"rank {rank}: " + ", ".join(
        f"{digit} {layout.place(digit, rank)}" for digit in ("tp", "cp", "dp", "pp")
    )
    _box(group, x + 2, y + 2, FIELD - 4, FIELD - 4, fill=colour(layout.place("pp", rank), layout.pp))
    _text(group, x + FIELD // 2, y + 25, f"g{rank}", "on", "middle")
    _text(group, x + FIELD // 2, y + 42, f"dp {layout.place('dp', rank)}", "on small", "middle")


def _neighbours(picture: Picture, first: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield (first, end) of each part of a tp group on one node, if tp groups are consecutive ranks (order begins with tp)."""
    at, tp = first, picture.layout.tp if picture.layout.order.startswith("tp") else 1
    while tp > 1 and at < end:
        until = min((at // tp + 1) * tp, end)
        yield at, until
        at = until


def _small(root: ET.Element, picture: Picture, top: int) -> tuple[int, int]:
    """Draw several nodes in a line, with their range of numbers at the beginning. Return width and height."""
    stages = picture.layout.pp if picture.layout.pp <= MOST_STAGES else 0
    for stage in range(stages):
        line, column = divmod(stage, KEYS_BESIDE)
        _key(root, picture, stage, MARGIN + column * KEY, top + line * LINE)
    top += (stages + KEYS_BESIDE - 1) // KEYS_BESIDE * LINE + GAP
    one = max(picture.slots) * SMALL + GAP
    # Nodes in a line: a power of two, so that lines begin with round numbers.
    beside = 1 << max(0, ((WIDTH - SMALL_NODES - 2 * MARGIN) // one).bit_length() - 1)
    for node, (first, slots) in enumerate(zip(picture.firsts, picture.slots)):
        line, column = divmod(node, beside)
        y = top + line * (SMALL + GAP)
        if not column:
            last = min(node + beside, len(picture.slots)) - 1
            _text(root, MARGIN, y + SMALL, f"nodes {node} to {last}, from g{first}", "small")
        for start, end, stage in _runs(picture, first, first + slots):
            x = SMALL_NODES + MARGIN + column * one + (start - first) * SMALL
            box = _box(root, x, y, (end - start) * SMALL - 1, SMALL + 2, fill=colour(stage, picture.layout.pp))
            ET.SubElement(box, "title").text = f"node {node}, ranks {text.runs(range(start, end))}: stage {stage}"
    lines = (len(picture.slots) + beside - 1) // beside
    return WIDTH, top + lines * (SMALL + GAP) + MARGIN


def _runs(picture: Picture, first: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield (first, end, stage) of consecutive ranks of one stage."""
    for stage, group in itertools.groupby(range(first, end), partial(picture.layout.place, "pp")):
        ranks = list(group)
        yield ranks[0], ranks[-1] + 1, stage


def _key(root: ET.Element, picture: Picture, stage: int, x: int, y: int) -> None:
    layers = text.layers(picture.stages, stage)
    _box(root, x, y, 14, 14, fill=colour(stage, picture.layout.pp))
    _text(root, x + 20, y + 12, f"stage {stage}{': layers ' if layers else ''}{layers}", "small")


def _box(root: ET.Element, x: int, y: int, width: int, height: int, fill: str = "", kind: str = "") -> ET.Element:
    look = {"fill": fill} if fill else {"class": kind}
    return ET.SubElement(root, "rect", {"x": str(x), "y": str(y), "width": str(width), "height": str(height), "rx": "3", **look})


def _text(root: ET.Element, x: int, y: int, words: str, kind: str = "", anchor: str = "start") -> None:
    look = {"class": kind} if kind else {}
    ET.SubElement(root, "text", {"x": str(x), "y": str(y), "text-anchor": anchor, **look}).text = words


def colour(stage: int, stages: int) -> str:
    """Return the colour of a stage: light enough for black text. Neighbouring stages differ in lightness too."""
    return f"hsl({(round(stage * 360 / stages) + 200) % 360} 70% {(70, 82)[stage % 2]}%)"
