"""Metrics as text, in the form of OpenMetrics 1.0.

Gauges and counters are the only types: older readers of Prometheus' own form, such as node_exporter's textfile collector, take them too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

GAUGE, COUNTER = "gauge", "counter"
_NAME = re.compile("[a-zA-Z_:][a-zA-Z0-9_:]*")
_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})

Samples = Iterable[tuple[Mapping[str, Any], float]]


@dataclass(frozen=True)
class Family:
    """Metric with its samples: labels and a number each. unit: the end of the name, if any. name: without the _total that a counter gets in
    the output."""

    name: str
    help: str
    samples: Samples
    kind: str = GAUGE
    unit: str = ""


def text(families: Iterable[Family], labels: Mapping[str, Any]) -> str:
    """Return the metrics in the form of OpenMetrics 1.0. labels: added to every sample. A family without samples is left out."""
    return "".join(f"{line}\n" for family in families for line in _lines(family, labels)) + "# EOF\n"


def prometheus_text(families: Iterable[Family], labels: Mapping[str, Any]) -> str:
    """Return the same in Prometheus' own form 0.0.4: a counter's whole name is in its head, and there are no units."""
    return "".join(f"{line}\n" for family in families for line in _lines(family, labels, openmetrics=False))


def _lines(family: Family, labels: Mapping[str, Any], *, openmetrics: bool = True) -> Iterator[str]:
    assert _NAME.fullmatch(family.name), family.name
    assert family.name.endswith(f"_{family.unit}" if family.unit else ""), family.name
    samples = list(family.samples)
    if not samples:
        return
    end = "_total" if family.kind == COUNTER else ""
    name = family.name if openmetrics else f"{family.name}{end}"
    yield f"# TYPE {name} {family.kind}"
    if family.unit and openmetrics:
        yield f"# UNIT {name} {family.unit}"
    yield f"# HELP {name} {family.help.translate(_ESCAPES)}"
    for sample_labels, value in samples:
        yield f"{family.name}{end}{{{_labels({**labels, **sample_labels})}}} {_number(value)}"


def _labels(labels: Mapping[str, Any]) -> str:
    """Return labels as text. Bytes that are not UTF-8 become escapes."""
    shown = {name: str(value).encode(errors="backslashreplace").decode() for name, value in labels.items()}
    return ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in shown.items())


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(float(value))
