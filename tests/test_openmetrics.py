"""Metrics as text. The forms were tried against prometheus_client's parsers of OpenMetrics and of Prometheus' own form."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from ranklaunch.notify import metrics
from ranklaunch.openmetrics import COUNTER, Family, text

RANKS = [
    {"rank": 0, "state": "running", "cpu_s": 12.5, "rss_kb": 2, "output_bytes": 7, "last_output_s": None},
    {"rank": 2, "output_bytes": 5, "last_output_s": 2.0},
    {"rank": 1, "state": "gone", "cpu_s": 0.0, "rss_kb": 0, "output_bytes": 9, "last_output_s": 1.5, "step": 40, "step_s": 0.25},
]
STANDING = metrics.Standing(
    labels={"job_name": "a job", "node": 1}, info={"host": "h1"}, phase="running", ranks=RANKS, nodes=2, world_size=4, attempt=3,
    restarts=1, hangs=True, began=1e9, now=1e9 + 60.5,
)  # fmt: skip


def test_families_as_text() -> None:
    families = [
        Family("a_seconds", 'with "quotes",\nlines and \\', [({"x": 'a"b\\c\nd\udce9'}, 1.5)], unit="seconds"),
        Family("b", "counts", [({}, 2.0)], COUNTER),
        Family("c", "nothing", []),
    ]
    assert text(families, {"job": "j"}) == (
        "# TYPE a_seconds gauge\n"
        "# UNIT a_seconds seconds\n"
        '# HELP a_seconds with \\"quotes\\",\\nlines and \\\\\n'
        'a_seconds{job="j",x="a\\"b\\\\c\\nd\\\\udce9"} 1.5\n'
        "# TYPE b counter\n"
        "# HELP b counts\n"
        'b_total{job="j"} 2\n'
        "# EOF\n"
    )


@pytest.mark.parametrize("family", [Family("1a", "", [({}, 1)]), Family("a", "", [({}, 1)], unit="bytes")])
def test_names_keep_the_rules(family: Family) -> None:
    with pytest.raises(AssertionError):
        text([family], {})


def values(shown: str) -> dict[str, float]:
    """By name and labels but those of all."""
    found = re.findall(r"^(\w+)\{job_name=\"a job\",node=\"1\",?(.*)\} (\S+)$", shown, re.MULTILINE)
    return {f"{name}{{{labels}}}": float(value) for name, labels, value in found}


def test_a_node_as_metrics() -> None:
    found = values(metrics.shown(STANDING))
    told = {
        "ranklaunch_job_info{host=\"h1\"}": 1, "ranklaunch_attempt{}": 3, "ranklaunch_restarts_total{}": 1,
        "ranklaunch_hang_suspected{}": 1,
        'ranklaunch_phase{phase="running"}': 1, 'ranklaunch_phase{phase="ended"}': 0, 'ranklaunch_ranks{state="gone"}': 1,
        'ranklaunch_ranks{state="sleeping"}': 0, "ranklaunch_step{}": 40, "ranklaunch_step_time_seconds{}": 0.25,
        'ranklaunch_rank_step{rank="1"}': 40, 'ranklaunch_rank_output_bytes_total{rank="0"}': 7,
        'ranklaunch_rank_cpu_seconds_total{rank="0"}': 12.5, 'ranklaunch_rank_resident_bytes{rank="0"}': 2048,
        'ranklaunch_rank_silent_seconds{rank="1"}': 1.5, 'ranklaunch_rank_output_bytes_total{rank="2"}': 5,
        "ranklaunch_written_time_seconds{}": 1e9 + 60.5,
    }  # fmt: skip
    assert {name: found.get(name) for name in told} == told
    assert not [name for name in found if name.startswith("ranklaunch_exit_code")]
    assert 'ranklaunch_rank_silent_seconds{rank="0"}' not in found
    ended = values(metrics.shown(replace(STANDING, phase="ended", exit_code=137, ranks=[])))
    assert ended["ranklaunch_exit_code{}"] == 137
    assert not [name for name in ended if "rank=" in name or name.startswith("ranklaunch_step")]


def test_each_name_is_said_once_and_ends_with_the_end() -> None:
    shown = metrics.shown(STANDING)
    names = re.findall(r"^# TYPE (\S+)", shown, re.MULTILINE)
    assert len(names) == len(set(names))
    assert shown.endswith("\n# EOF\n")


def test_what_grows_does_not_shrink() -> None:
    growing = metrics.Growing()

    def kept(cpu_s: float) -> Any:
        return growing.kept([{"rank": 0, "cpu_s": cpu_s, "output_bytes": 1}])[0]["cpu_s"]

    assert [kept(5), kept(3), kept(7)] == [5, 5, 7]
