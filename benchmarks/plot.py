"""Picture of the rows: a panel for each section, a point for each row."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.rows import Row
from benchmarks.tables import Section

OURS, OTHERS = "#c4501b", "#8a94a0"
LINE = 0.28  # inches


def draw(sections: Sequence[Section], path: Path) -> None:
    """Write the picture. Raises ImportError without matplotlib."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    panels = [(section.name, unit, rows) for section in sections for unit, rows in [_first_unit(section.rows)] if rows]
    if not panels:
        return
    heights = [len(rows) + 2 for _, _, rows in panels]
    figure, axes = pyplot.subplots(
        len(panels), 1, figsize=(9, LINE * sum(heights) + 1), squeeze=False, layout="constrained", height_ratios=heights
    )
    for axis, (name, unit, rows) in zip(axes[:, 0], panels):
        _panel(axis, name, unit, rows)
    figure.savefig(path)
    pyplot.close(figure)


def _first_unit(rows: Sequence[Row]) -> tuple[str, list[Row]]:
    """Return the first unit of a section, and the rows with a value in this unit."""
    unit = next((unit for row in rows for unit in row.values), "")
    return unit, [row for row in rows if row.values.get(unit, 0) > 0]


def _panel(axis: Any, name: str, unit: str, rows: Sequence[Row]) -> None:
    """Draw one panel, with points in place of bars: the axis is logarithmic, so a length has no meaning."""
    for place, row in enumerate(rows):
        number = row.values[unit]
        axis.plot(number, place, "o", color=OURS if "ranklaunch" in row.way else OTHERS)
        axis.annotate(f"{number:.3g}", (number, place), xytext=(7, 0), textcoords="offset points", va="center", fontsize=7)
    axis.set_yticks(range(len(rows)), [f"{row.case}: {row.way}" for row in rows])
    axis.set_ylim(len(rows) - 0.4, -0.6)
    axis.set_xscale("log")
    axis.margins(x=0.1)
    axis.grid(axis="y", linewidth=0.3)
    axis.tick_params(which="both", labelsize=7)
    axis.set_title(f"{name}: {unit}", fontsize=9)
