"""Plot of the metric over the micro-batch as SVG: a line for each stage and offload, through its best
candidate at each size. Failed candidates are crosses at the foot; candidates without a trial are not
shown. Colours fit a light and a dark background."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from xml.etree import ElementTree as ET

from ranklaunch.showing import one_line
from ranklaunch.tune.model import FLOPS, LATENCY, OK, STATUSES, Row, is_figure
from ranklaunch.tune.search import Search
from ranklaunch.tune.table import unit

LEFT, TOP, WIDTH, HEIGHT = 90, 84, 640, 360  # pixels: the area of the lines
FOOT = 40  # pixels below this area, for failed candidates
KEY, LINE, MARGIN = 230, 20, 16
MOST_KEYS = 18
DASHES = ("", "7 4", "2 4", "9 3 2 3")  # one for each kind of offload, in turn
HUES = (210, 30, 140, 320)  # one for each stage
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1a1a1a }
.title { font-weight: 600; font-size: 16px }
.small { font-size: 11px }
.ground { fill: #ffffff }
.axis { stroke: #777777; stroke-width: 1 }
.grid { stroke: #dddddd; stroke-width: 1 }
.best { fill: none; stroke: #1a1a1a; stroke-width: 2 }
@media (prefers-color-scheme: dark) {
  text { fill: #eeeeee }
  .ground { fill: #16181c }
  .grid { stroke: #33363d }
  .best { stroke: #eeeeee }
}
"""


def drawn(search: Search) -> str:
    tried = [row for row in search.rows if row.status in STATUSES]
    metric, best = search.settings.metric, search.best
    title = f"{metric} of {len(tried)} configurations" + (f", best {best.name}" if best else "")
    width, height = LEFT + WIDTH + MARGIN + KEY, TOP + HEIGHT + FOOT + 60
    size = {"width": str(width), "height": str(height), "viewBox": f"0 0 {width} {height}"}
    root = ET.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "role": "img", "aria-label": title, **size})
    ET.SubElement(root, "style").text = STYLE
    ET.SubElement(root, "rect", {"class": "ground", "width": str(width), "height": str(height)})
    _text(root, MARGIN, 30, title, "title")
    _text(root, MARGIN, 50, "cross: a configuration that failed; ring: the best", "small")
    if tried:
        _field(root, Scale(tried, metric, unit(metric, best)), tried, best.name if best else "")
    return f"{ET.tostring(root, encoding='unicode')}\n"


class Scale:
    """Maps samples of a micro-batch and values of the metric to pixels."""

    def __init__(self, rows: Sequence[Row], metric: str, unit: str) -> None:
        self.metric, self.unit = metric, unit
        micros = [row.micro for row in rows]
        self.low, self.high = math.log2(min(micros)), math.log2(max(micros))
        self.top = (max((value(row) for row in rows if row.status == OK), default=0.0) or 1.0) * 1.05

    def x(self, micro: int) -> float:
        share = (math.log2(micro) - self.low) / (self.high - self.low) if self.high > self.low else 0.5
        return round(LEFT + WIDTH * (0.03 + 0.94 * share), 1)

    def y(self, value: float) -> float:
        return round(TOP + HEIGHT * (1 - value / self.top), 1)


def value(row: Row) -> float:
    return row.value if row.value is not None and is_figure(row.value) else 0.0


def _field(root: ET.Element, scale: Scale, rows: Sequence[Row], best: str) -> None:
    _axes(root, scale, sorted({row.micro for row in rows}))
    offloads = sorted({row.offload for row in rows})
    for number, (stage, offload) in enumerate(sorted({(row.stage, row.offload) for row in rows})):
        look = {"stroke": colour(stage), "stroke-dasharray": DASHES[offloads.index(offload) % len(DASHES)]}
        group = [row for row in rows if (row.stage, row.offload) == (stage, offload)]
        _line(root, scale, group, look)
        for row in group:
            _point(root, scale, row, row.name == best)
        if number < MOST_KEYS:
            _key(root, TOP + number * LINE, f"stage {stage}{f', {offload} offload' if offload else ''}", look)


def _axes(root: ET.Element, scale: Scale, micros: Sequence[int]) -> None:
    for tick in _ticks(scale.top):
        y = scale.y(tick)
        _stroke(root, LEFT, y, LEFT + WIDTH, y, "grid")
        _text(root, LEFT - 8, y + 4, f"{tick / 1e12 if scale.metric == FLOPS else tick:g}", "small", "end")
    _stroke(root, LEFT, TOP + HEIGHT, LEFT + WIDTH, TOP + HEIGHT, "axis")
    free = -math.inf
    for micro in micros:
        x = scale.x(micro)
        if x - free > 28:
            _text(root, x, TOP + HEIGHT + FOOT + 16, str(micro), "small", "middle")
            free = x
    _text(root, LEFT + WIDTH // 2, TOP + HEIGHT + FOOT + 40, "samples of a micro-batch", "", "middle")
    better = "less is better" if scale.metric == LATENCY else "more is better"
    _text(root, LEFT, TOP - 6, f"{scale.unit}, {better}", "small")


def _ticks(top: float) -> Iterator[float]:
    """Yield at most eight round numbers from 0 on."""
    rough = top / 6
    unit = 10 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough)
    yield from (step * number for number in range(int(top / step) + 1))


def _line(root: ET.Element, scale: Scale, rows: Sequence[Row], look: Mapping[str, str]) -> None:
    """Draw a line through the best value of each micro-batch."""
    best: dict[int, float] = {}
    for row in rows:
        if row.status == OK:
            best_value = best.get(row.micro, value(row))
            best[row.micro] = (min if scale.metric == LATENCY else max)(best_value, value(row))
    points = " ".join(f"{scale.x(micro)},{scale.y(best_value)}" for micro, best_value in sorted(best.items()))
    ET.SubElement(root, "polyline", {"points": points, "fill": "none", "stroke-width": "2", **look})


def _point(root: ET.Element, scale: Scale, row: Row, is_best: bool) -> None:
    group = ET.SubElement(root, "g")
    outcome = f"{value(row):.4g}" if row.status == OK else one_line(f"{row.status}: {row.reason}" if row.reason else row.status)
    ET.SubElement(group, "title").text = f"{row.name}: {outcome}"
    x, fill = scale.x(row.micro), colour(row.stage)
    if row.status != OK:
        y = TOP + HEIGHT + 8 + row.stage * 8
        ET.SubElement(group, "path", {"d": f"M{x - 4},{y - 3}l8,6m0,-6l-8,6", "stroke": fill, "stroke-width": "2", "fill": "none"})
        return
    ET.SubElement(group, "circle", {"cx": str(x), "cy": str(scale.y(value(row))), "r": "4", "fill": fill})
    if is_best:
        ET.SubElement(group, "circle", {"cx": str(x), "cy": str(scale.y(value(row))), "r": "8", "class": "best"})


def _key(root: ET.Element, y: int, words: str, look: Mapping[str, str]) -> None:
    left = LEFT + WIDTH + MARGIN
    ET.SubElement(root, "polyline", {"points": f"{left},{y + 8} {left + 30},{y + 8}", "fill": "none", "stroke-width": "2", **look})
    _text(root, left + 38, y + 12, words, "small")


def _stroke(root: ET.Element, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
    ET.SubElement(root, "line", {"x1": str(x1), "y1": str(y1), "x2": str(x2), "y2": str(y2), "class": kind})


def _text(root: ET.Element, x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> None:
    look = {"class": kind} if kind else {}
    ET.SubElement(root, "text", {"x": str(x), "y": str(y), "text-anchor": anchor, **look}).text = words


def colour(stage: int) -> str:
    """Return a colour that is visible on white and on black."""
    return f"hsl({HUES[stage % len(HUES)]} 75% 50%)"
