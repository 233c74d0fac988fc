"""Bad values are refused before anything reaches a cluster, by a message that has the value's name.

The two Helms say it in their own words, so tests look for the name alone: each part of it as a word of the message.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from chart_refusals import EVERY, Bad, bad_id

from testbench.judges.charts import RELEASE, RUN, RUNTIMES, Object, case, every_helm, helm, load, rendered_with


@every_helm
@pytest.mark.parametrize("bad", EVERY, ids=bad_id)
def test_refused_by_name(major: str, bad: Bad, tmp_path: Path) -> None:
    done = rendered_with(major, tmp_path, case(bad.case), bad.changes)
    assert done.returncode != 0, done.stdout
    assert done.stdout == ""
    for part in bad.name.split("."):
        assert re.search(rf"\b{part}\b", done.stderr), done.stderr


def without(values: Object, deep: bool) -> Object:
    """Each value as null: groups whole, or what is in them."""
    return {name: without(value, deep) if deep and isinstance(value, dict) and value else None for name, value in values.items()}


def named(values: Object, place: str = "") -> Iterator[tuple[str, str]]:
    """(the group's place, the value's name) for every null."""
    for name, value in values.items():
        if value is None:
            yield place, name
        else:
            yield from named(value, name)


@every_helm
@pytest.mark.parametrize("deep", [False, True], ids=["groups", "values"])
@pytest.mark.parametrize("chart", [RUN, RUNTIMES], ids=["run", "runtimes"])
def test_a_value_without_anything_is_never_rendered(major: str, chart: Path, deep: bool, tmp_path: Path) -> None:
    """Helm takes such a value out, and the default with it: a user id that nobody gave would be root's."""
    nulls = without(load(chart / "values.yaml"), deep)
    changed = tmp_path / "nulls.yaml"
    changed.write_text(json.dumps(nulls), encoding="utf-8")
    done = helm(major, "template", RELEASE, chart, "--values", changed)
    assert done.returncode != 0, done.stdout
    lines = done.stderr.splitlines()
    for place, name in named(nulls):
        assert [line for line in lines if re.search(rf"\b{name}\b", line) and place in line], f"{place}.{name}: {done.stderr}"


@every_helm
@pytest.mark.parametrize("chart", [RUN, RUNTIMES], ids=["run", "runtimes"])
def test_one_value_without_anything_is_enough(major: str, chart: Path) -> None:
    given = ("--values", case("job-plain-cpu")) if chart == RUN else ()
    for null in ("security.runAsUser", "lifecycle"):
        done = helm(major, "template", RELEASE, chart, *given, "--set", f"{null}=null")
        assert done.returncode != 0, done.stdout
        assert "nil pointer" not in done.stderr
        assert null.rpartition(".")[2] in done.stderr
