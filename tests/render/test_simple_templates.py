"""What is rendered without Jinja is what Jinja renders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import helpers
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ranklaunch.render.jinja import Jinja
from ranklaunch.render.templates import SHIPPED, NotSimple, Simple, parse


class Thing:
    name = "n"
    empty = ""
    words = ("a b", "c")
    number = 0
    deep: Thing

    def method(self) -> str:
        return "called"


THING = Thing()
THING.deep = Thing()
VALUES: dict[str, Any] = {"job": THING, "rank": 3, "none": None, "text": "a {{ rank }} b", "words": ["x", "y z"]}
SIMPLE = [
    "{{ job.name }}", "{{ rank }}", "{{ text }}", "{{ words }}", "{{ none }}", "{{ job.deep.number }}", "{{ job.empty }}",
    "{% if job.name %}", "{% if not job.name %}", "{% if job.number %}", "{% elif rank %}", "{% elif not job.deep.words %}",
    "{% else %}", "{% endif %}", "{# a comment #}", "{# {{ rank }} #}", "{# two\nlines #}", '{% include "part.j2" %}',
]  # fmt: skip
TEXT = [
    " ", "  ", "\t", "\n", "\n\n", "a", "'", '"', "}", "{", "%}", "}}", "#}", "x=y", "\f", "\u2028", "\x0b", "\x85", "\xa0", "{{",
    "{%", "{#", "\r", "\r\n",
]  # fmt: skip
OTHERS = [
    '{% include "absent.j2" %}', "{{ job.method }}", "{{ job.none }}", "{{ job.__class__ }}", "{% if job.method %}", "{{rank}}",
    "{{- rank }}", "{%- else %}", "{{ rank + 1 }}", "{{ rank }", "{{ words | length }}", "{% if rank == 3 %}", "{% for w in words %}",
    "{% endfor %}", "{% raw %}", "{% endraw %}", "{{ w }}", "{{ true }}", "{{ nothing }}", "{{ range }}", "{{ '}}' }}", "{% set w = 1 %}",
]  # fmt: skip
PIECES = st.sampled_from([*SIMPLE, *SIMPLE, *TEXT, *OTHERS])
TEMPLATES = st.lists(PIECES, max_size=14).map("".join)


def word(value: object) -> str:
    if isinstance(value, (str, int)):
        return f"<{value}>"
    raise ValueError(value)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("templates")
    (made / "part.j2").write_text("{# part #}\n{% if rank %}\n  {{ rank }}\n{% endif %}\n", encoding="utf-8")
    return made


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(TEMPLATES)
@example("{% if rank %}\n  {% if not rank %}\n a\n  {% else %}\n  {# c #}\n b{% endif %}\n{% endif %}\n\n")
@example("  {# a #}  {# b #}\n x")
@example("\n")
@example("{{# a comment #}")
@example('a\n  {% include "part.j2" %}\n  {% if rank %}\n b\n{% endif %}\n')
def test_as_jinja_does(folder: Path, source: str) -> None:
    try:
        text = Simple([str(folder)], word).inline(source, VALUES)
    except NotSimple:
        return
    assert text == Jinja([str(folder)], word, word).inline(source, "here", VALUES)


@pytest.mark.parametrize("name", ["program.j2", "spawn/command.j2", "plain/command.j2", "ranktable/command.j2", "pytorch/command.j2"])
def test_those_that_start_ranks_are_simple(name: str) -> None:
    parse(Path(SHIPPED, name).read_text(encoding="utf-8"))


@helpers.for_each([
        "{% if rank %}", "{% endif %}", "{% else %}", "{% if rank %}{% else %}{% else %}{% endif %}",
        "{% if rank %}{% else %}{% elif rank %}{% endif %}", "{% elif rank %}{% endif %}", "{{ rank", "a" * 70000, "{{ a.b }}{{",
        "{% if rank %}" * 5000,
    ])  # fmt: skip
def test_others_are_left_to_jinja(source: str) -> None:
    with pytest.raises(NotSimple):
        Simple([], word).inline(source, VALUES)


def test_a_template_that_nests_too_deep() -> None:
    source = "{% if rank %}" * 3000 + "{% endif %}" * 3000
    with pytest.raises(NotSimple):
        Simple([], word).inline(source, VALUES)


def test_a_template_that_includes_itself(tmp_path: Path) -> None:
    (tmp_path / "a.j2").write_text('a{% include "a.j2" %}', encoding="utf-8")
    with pytest.raises(NotSimple):
        Simple([str(tmp_path)], word).render("a.j2", VALUES)
