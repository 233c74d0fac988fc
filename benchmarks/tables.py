"""Output of the rows: Markdown tables, and the JSON in which rows are stored."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.rows import Row, Target

SCHEMA = "ranklaunch.bench/1"
BEGIN, END = "<!-- results: python -m benchmarks.bench --write-docs writes them -->\n", "<!-- end of results -->"


@dataclass(frozen=True)
class Section:
    """Results of one section. left_out: reason for which the section was not measured. error: error during the measurement."""

    name: str
    rows: Sequence[Row] = ()
    targets: Sequence[Target] = ()
    left_out: str = ""
    error: str = ""

    @property
    def measured(self) -> bool:
        return not self.error and (bool(self.left_out) or any(row.values for row in self.rows))


def as_json(machine: Mapping[str, Any], quick: bool, sections: Sequence[Section]) -> dict[str, Any]:
    return {"schema": SCHEMA, "quick": quick, "machine": dict(machine), "sections": [_section(section) for section in sections]}


def _section(section: Section) -> dict[str, Any]:
    targets = [{**dataclasses.asdict(target), "met": target.met} for target in section.targets]
    return {**dataclasses.asdict(section), "targets": targets}


def from_json(data: Mapping[str, Any]) -> list[Section]:
    return [
        Section(
            each["name"],
            [Row(**row) for row in each["rows"]],
            [Target(**{name: target[name] for name in target if name != "met"}) for target in each["targets"]],
            each["left_out"],
            each["error"],
        )
        for each in data["sections"]
    ]


def report(machine: Mapping[str, Any], quick: bool, sections: Sequence[Section]) -> str:
    """Return all results as Markdown."""
    facts = [f"{name}: {text}" for name, text in machine.items()]
    parts = [f"Measured on: {'; '.join(facts)}." + (" A quick run, whose numbers say little." if quick else "")]
    parts += [f"### {section.name}\n\n{_text(section)}" for section in sections]
    targets = [target for section in sections for target in section.targets]
    return "\n\n".join([*parts, *([f"### targets\n\n{targets_table(targets)}"] if targets else [])]) + "\n"


def _text(section: Section) -> str:
    if section.left_out:
        return f"Left out: {section.left_out}."
    return f"Not measured: {one_line(section.error)}." if section.error else rows_table(section.rows)


def rows_table(rows: Sequence[Row]) -> str:
    units = list(dict.fromkeys(unit for row in rows for unit in row.values))
    lines = [
        [row.case, row.way, *(number(row.values.get(unit)) for unit in units), str(row.runs or ""), one_line(row.note)] for row in rows
    ]
    return table(["case", "way", *units, "runs", "note"], lines)


def targets_table(targets: Sequence[Target]) -> str:
    lines = [[target.text, number(target.value), _aim(target), _outcome(target)] for target in targets]
    return table(["target", "measured", "aim", "outcome"], lines)


def _aim(target: Target) -> str:
    return f"{'at least' if target.at_least else 'at most'} {number(target.limit)}"


def _outcome(target: Target) -> str:
    if target.value is None:
        return "not measured"
    return "met" if target.met else "**missed**"


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    cells = [head, ["---"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in cells)


def number(value: float | None) -> str:
    """Return a number with three significant digits; whole and large numbers in full."""
    if value is None:
        return ""
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def one_line(text: str) -> str:
    return " ".join(text.split())


def filled(page: str, text: str) -> str:
    """Return the page with the results between its two marks. Raises ValueError for a page without the marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        msg = f"the page has no {BEGIN.strip()} with {END} after it"
        raise ValueError(msg)
    return f"{before}{BEGIN}\n{text}\n{END}{after}"
