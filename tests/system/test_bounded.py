"""What a template of a user's may take: so much time and memory, and no more, whatever it is made of."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import helpers
import pytest

from ranklaunch.env.job import Node, Program, make_nodes
from ranklaunch.errors import ConfigError, WaitError
from ranklaunch.render.templates import Templates
from ranklaunch.system import bounded

LONG = "for i in range(99999)"
# Each makes much of little in another way; a sandbox that looks at operators alone sees few of them.
GREEDY = {
    "product": "{{ 'x' * 10**9 }}",
    "product of a list": "{{ ([rank] * 10**9) | length }}",
    "power": "{{ (10**8 * rank + 10) ** (10**8) }}",
    "power of a constant": "{% if 7**(10**8) %}{% endif %}",
    "center": "{{ 'x' | center(10**9) }}",
    "indent": "{{ 'x\\nx' | indent(10**9) }}",
    "percent": "{{ '%1000000000d' % rank }}",
    "format": "{{ '{:1000000000}'.format(rank) }}",
    "format filter": "{{ '%1000000000d' | format(rank) }}",
    "join": "{{ (['x' * 10**6] * 10**6) | join }}",
    "replace": "{{ ('x' * 10**5).replace('x', 'y' * 10**5) }}",
    "loops without text": f"{{% {LONG} %}}{{% {LONG} %}}{{% endfor %}}{{% endfor %}}",
    "names": "{% set ns = namespace(a='x') %}{% for i in range(60) %}{% set ns.a = ns.a ~ ns.a %}{% endfor %}{{ ns.a }}",
    "too much text": "{{ 'x' * (32 * 1024 * 1024) }}",
}


@pytest.fixture(autouse=True)
def less_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The least that a limit can be: each case takes it whole."""
    monkeypatch.setattr(bounded, "CPU_S", 1)


@pytest.fixture
def templates() -> Templates:
    return Templates(bounded=bounded.call)


def refused(work: Callable[[], object], name: str) -> None:
    """At once, as people see it: so much CPU time, however busy the machine."""
    began = time.process_time()
    with pytest.raises(ConfigError) as found:
        work()
    assert re.match(rf"template {re.escape(name)}: it takes more than 1 s of CPU time, 256 MiB of memory or ", str(found.value))
    assert len(found.value.problems) == 1
    assert time.process_time() - began < 2


# Of those that take their time whole: a constant, which is computed when the template is read, stands for all that never come back from
# one call, and loops for the others.
SLOW = {"power", "join", "too much text"}
LINES = [pytest.param(source, id=name, marks=pytest.mark.table if name in SLOW else ()) for name, source in GREEDY.items()]


@pytest.mark.processes
@pytest.mark.parametrize("source", LINES)
def test_a_line(templates: Templates, source: str) -> None:
    refused(lambda: templates.inline(source, "RANKLAUNCH_LOG_TAG", rank=3), "RANKLAUNCH_LOG_TAG")


@pytest.mark.processes
def test_a_command_and_a_file(tmp_path: Path) -> None:
    (tmp_path / "own.j2").write_text(GREEDY["product"])
    templates = Templates([str(tmp_path)], bounded.call)
    refused(lambda: templates.command("own.j2", rank=3), "own.j2")
    refused(lambda: templates.text("own.j2", rank=3), "own.j2")


@pytest.mark.processes
def test_templates_that_include_each_other(tmp_path: Path) -> None:
    """Each of them is simple."""
    for i in range(20):
        (tmp_path / f"t{i}.j2").write_text(f'{{% include "t{i + 1}.j2" %}}' * 50)
    (tmp_path / "t20.j2").write_text("{{ rank }}")
    refused(lambda: Templates([str(tmp_path)], bounded.call).command("t0.j2", rank=3), "t0.j2")


@pytest.mark.processes
def test_a_value_that_is_put_in_often(tmp_path: Path) -> None:
    (tmp_path / "own.j2").write_text("run " + "{{ a }}" * 50)
    with pytest.raises(ConfigError, match=r"^template .*own\.j2, line 1: its values have more than 16777216 characters$"):
        Templates([str(tmp_path)], bounded.call).command("own.j2", a="x" * 1_000_000)


@pytest.mark.processes
def test_a_fifo_among_templates(tmp_path: Path) -> None:
    """It would be waited for without end."""
    os.mkfifo(tmp_path / "own.j2")
    with pytest.raises(ConfigError, match=r"own\.j2: expected a file, or a link to one"):
        Templates([str(tmp_path)], bounded.call).command("own.j2")


@pytest.mark.processes
def test_work_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "WALL_S", 0.2)
    refused(lambda: bounded.call(lambda: time.sleep(600), "template x"), "x")


@helpers.for_each(["{{", "{%", "{#", "{{ ", "{", "{{}", "{{ a }", "{% if a %}", "\n", " ", "{##}", "{# #} \n"])
def test_a_template_that_takes_long_to_read(begin: str) -> None:
    """What needs no process either."""
    began = time.process_time()
    source = (begin * 65536)[:65536]
    with contextlib.suppress(ConfigError):
        Templates(bounded=_refuses).inline(source, "RANKLAUNCH_LOG_TAG", a=1)
    assert time.process_time() - began < 1


def _refuses(work: Callable[[], object], what: str) -> object:
    raise ConfigError(what)


@pytest.mark.processes
def test_a_line_that_is_too_long(templates: Templates) -> None:
    for source in ("{{ 'x' * 5000 }}", "{{ host }}" * 1000):
        with pytest.raises(ConfigError, match=r"^template RANKLAUNCH_LOG_TAG: renders to \d+ characters, expected at most 4096$"):
            templates.inline(source, "RANKLAUNCH_LOG_TAG", host="a host")


@pytest.mark.processes
def test_what_takes_little_is_as_it_was(tmp_path: Path, templates: Templates) -> None:
    assert templates.inline("{{ '%02d' % rank }} \udcff", "RANKLAUNCH_LOG_TAG", rank=3) == "03 \udcff"
    (tmp_path / "own.j2").write_text("run {{ job.words }} {{ 'a b' ~ rank }} {% for i in range(3) %}{{ i }}{% endfor %}")
    own = Templates([str(tmp_path)], bounded.call)
    assert own.command("own.j2", job=Program("x", ("a b", "", "c'")), rank=3) == ("run", "x", "a b", "", "c'", "a b3", "012")


@pytest.mark.processes
@pytest.mark.parametrize(
    "source", ["{{ rnak }}", "{{ rank", "{{ rank.__class__ }}", "{{ 1 / 0 }}", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"]
)
def test_mistakes_are_told_as_they_were(templates: Templates, source: str) -> None:
    with pytest.raises(ConfigError) as found:
        templates.inline(source, "RANKLAUNCH_LOG_TAG", rank=3)
    with pytest.raises(ConfigError) as other:
        Templates().inline(source, "RANKLAUNCH_LOG_TAG", rank=3)
    assert found.value.problems[0].partition(" while calling")[0] == other.value.problems[0].partition(" while calling")[0]


@pytest.mark.processes
@pytest.mark.parametrize("opening", ["(", "[", "{{ [", "not ", "-", "{% if a %}"])
def test_a_template_that_nests_without_end(templates: Templates, opening: str) -> None:
    source = "{{ " + opening * 20_000 if opening[0] != "{" else opening * 20_000
    with pytest.raises(ConfigError, match=r"^template RANKLAUNCH_LOG_TAG"):
        templates.inline(source, "RANKLAUNCH_LOG_TAG", a=1)


def test_simple_templates_and_ours_take_no_process() -> None:
    """Which the test would not be allowed."""
    templates = Templates(bounded=bounded.call)
    assert templates.inline("[rank {{ rank }}] ", "RANKLAUNCH_LOG_TAG", rank=3) == "[rank 3] "
    assert "n0" in templates.text("mpirun/hostfile.j2", hosts=[("n0", 2)])


def test_all_ranks_of_a_node_take_one_process() -> None:
    calls = []

    def counted(work: Callable[[], object], what: str) -> object:
        calls.append(what)
        return work()

    templates = Templates(bounded=counted)
    nodes = make_nodes(["a", "b"], [8, 8])
    known = [{"rank": r, "local_rank": i, "node": node.index, "host": node.host} for node in nodes for i, r in enumerate(node.ranks)]
    assert [templates.inline("{{ '%02d' % rank }}", "RANKLAUNCH_LOG_TAG", known, **each) for each in known] == [
        f"{i:02}" for i in range(16)
    ]
    assert calls == ["template RANKLAUNCH_LOG_TAG"]
    assert isinstance(nodes[0], Node)


@pytest.mark.processes
def test_no_process_left(templates: Templates, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refuse)
    before = sorted(os.listdir("/proc/self/fd"))
    with pytest.raises(WaitError, match="the system refuses to start a process, trying again may help"):
        templates.inline("{{ rank + 1 }}", "RANKLAUNCH_LOG_TAG", rank=3)
    assert sorted(os.listdir("/proc/self/fd")) == before


@pytest.mark.processes
@pytest.mark.parametrize("source", ["{{ {}['x' * 10**6] }}", "{{ " + "x" * 60_000 + " }}", "{% " + "x" * 60_000 + " %}"])
def test_what_a_mistake_quotes_is_short(templates: Templates, source: str) -> None:
    with pytest.raises(ConfigError, match=r"^template RANKLAUNCH_LOG_TAG") as found:
        templates.inline(source, "RANKLAUNCH_LOG_TAG", rank=3)
    assert len(str(found.value)) < 1200
