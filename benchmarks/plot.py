"""A picture of the rows: a panel for each section, a bar for each row."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rows import Row
from tables import Section

OURS, OTHERS = "#c4501b", "#8a94a0"
BAR = 0.28  # inches


def draw(sections: Sequence[Section], path: Path) -> None:
    """Raises ImportError without matplotlib."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    panels = [(section.name, unit, rows) for section in sections for unit, rows in [_first_unit(section.rows)] if rows]
    if not panels:
        return
    heights = [len(rows) + 2 for _, _, rows in panels]
    figure, axes = pyplot.subplots(
        len(panels), 1, figsize=(9, BAR * sum(heights) + 1), squeeze=False, layout="constrained", height_ratios=heights
    )
    for axis, (name, unit, rows) in zip(axes[:, 0], panels):
        _panel(axis, name, unit, rows)
    figure.savefig(path)
    pyplot.close(figure)


def _first_unit(rows: Sequence[Row]) -> tuple[str, list[Row]]:
    """The unit that a section's first row begins with, and the rows that have it."""
    unit = next((unit for row in rows for unit in row.values), "")
    return unit, [row for row in rows if row.values.get(unit, 0) > 0]


def _panel(axis: object, name: str, unit: str, rows: Sequence[Row]) -> None:
    values = [row.values[unit] for row in rows]
    colours = [OURS if "ranklaunch" in row.way else OTHERS for row in rows]
    bars = axis.barh([f"{row.case}: {row.way}" for row in rows], values, color=colours)  # type: ignore[attr-defined]
    axis.bar_label(bars, fmt="%.3g", padding=3, fontsize=7)  # type: ignore[attr-defined]
    axis.invert_yaxis()  # type: ignore[attr-defined]
    axis.set_xscale("log")  # type: ignore[attr-defined]
    axis.margins(x=0.1)  # type: ignore[attr-defined]
    axis.tick_params(labelsize=7)  # type: ignore[attr-defined]
    axis.set_title(f"{name}: {unit}", fontsize=9)  # type: ignore[attr-defined]
