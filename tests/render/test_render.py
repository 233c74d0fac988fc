"""Templates become commands: a value stays one word whatever it holds, and a mistake is told with file and line."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import helpers
import pytest
from jinja2 import Environment, meta

from ranklaunch.adapters.launchers import LAUNCHERS
from ranklaunch.env.job import Job, Program, make_nodes
from ranklaunch.errors import ConfigError
from ranklaunch.render import templates
from ranklaunch.render.templates import SHIPPED, Templates


def render(source: str, tmp_path: Path, **values: object) -> tuple[str, ...]:
    (tmp_path / "t.j2").write_text(source, encoding="utf-8")
    return Templates([str(tmp_path)]).command("t.j2", **values)


def job(*args: str, path: str = "train.py", module: bool = False, nodes: int = 2, text: str = "j") -> Job:
    program = Program(path, args, module)
    hosts = [f"h{i}" for i in range(nodes)]
    return Job(text, "local", 1, make_nodes(hosts, [2] * nodes), 0, "cpu", program, "python", "/logs")


# Templates of the user's


@helpers.for_each({"by simple means": '{% include "shipped/x" %}', "by Jinja": "{% include 'shipped/x' %}"})
def test_the_shipped_one_can_be_extended(include: str) -> None:
    """With what the user has changed of the templates that it includes itself."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("spawn/command.j2", "program.j2"):
            path = Path(folder, name)
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"{path.stem} " + include.replace("shipped/x", f"shipped/{name}"))
        assert Templates([folder]).command("spawn/command.j2", job=job()) == ("command", "program", "python", "-u", "train.py")


@pytest.mark.parametrize("quote", ['"', "'"], ids=["by simple means", "by Jinja"])
def test_the_line_behind_an_include_has_words_of_its_own(quote: str, tmp_path: Path) -> None:
    source = f"{{% include {quote}shipped/torchrun/command.j2{quote} %}}\n--my-flag\n{{% if job %}}\n  --more\n{{% endif %}}\n"
    found = render(source, tmp_path, **{**GIVEN, "job": job("x", nodes=1)})
    assert found[-4:] == ("train.py", "x", "--my-flag", "--more")


def test_one_that_includes_itself_is_refused_with_what_was_meant(tmp_path: Path) -> None:
    (tmp_path / "spawn").mkdir()
    (tmp_path / "spawn/command.j2").write_text('nice {% include "spawn/command.j2" %}')
    with pytest.raises(ConfigError, match=r"or includes or calls itself without end.*\{% include \"shipped/spawn/command.j2\" %\}"):
        Templates([str(tmp_path)]).command("spawn/command.j2", job=job())


def test_one_that_is_nested_too_deeply_is_told_so() -> None:
    with pytest.raises(ConfigError, match=r"^template RANKLAUNCH_LOG_TAG: it is nested too deeply, or"):
        Templates().inline("{{ " + "(" * 3000 + "rank" + ")" * 3000 + " }}", "RANKLAUNCH_LOG_TAG", rank=3)


# Hostile values through every template that ships


SHIPPED_TEMPLATES = {path.relative_to(SHIPPED).as_posix() for path in Path(SHIPPED).rglob("*.j2")}
COMMANDS = sorted({"program.j2", *(f"{name}/command.j2" for name in LAUNCHERS)})
# Commands without the program, and files, whose values must pass a filter (test_quoting.py).
OTHERS = {
    "ssh/sshd.j2", "ssh/sshd_config.j2", "ssh/ssh_config.j2", "ssh/known_hosts.j2", "mpirun/hostfile.j2",
    "deepspeed/hostfile.j2", "ray/start.j2",
}  # fmt: skip
THE_PROGRAM = {"msrun/scheduler.j2"}  # which it includes, and nothing else
GIVEN: dict[str, Any] = {
    "node_rank": 1, "master_addr": "h0", "master_port": 1, "extra": (), "appended": (), "mpirun": "mpirun", "version": "4",
    "hostfile": "/hostfile", "ssh": "/config", "shell": "", "port": 1, "forwarded": ("A",), "btl": "^openib",
    "added": {"B": "b"}, "last": (),
    "log_dir": "/logs/msrun", "cluster_time_out": 600, "rank_table_file": "", "interpreter": (),
    "main_process_ip": "h0", "main_process_port": 1, "config_file": "c", "mixed_precision": "no",
    "launcher": "no_ssh", "include": "", "elastic": False, "rank_logs": "", "dashes": (),
}  # fmt: skip


def test_shipped_templates_are_known_here() -> None:
    """A new template must go through the tests below: give it the values that it needs."""
    of_specifications = {name for name in SHIPPED_TEMPLATES if name.startswith("jobs/")}  # tests/specs
    where = "LAUNCHERS, whose command.j2 are found, or OTHERS in tests/render/test_render.py"
    helpers.listed_in(where, {*COMMANDS, *OTHERS, *THE_PROGRAM}, SHIPPED_TEMPLATES - of_specifications)
    taken = {value for name in COMMANDS for value in meta.find_undeclared_variables(Environment().parse(Path(SHIPPED, name).read_text()))}
    helpers.listed_in("GIVEN in tests/render/test_render.py, with a value for this test", {*GIVEN, "job"}, {*GIVEN, "job", *taken})


@helpers.for_each({f"{name}, {key}": (name, value) for name in COMMANDS for key, value in helpers.HOSTILE.items()})
def test_arguments_arrive_as_they_are(name: str, value: str) -> None:
    args = (value, "between", value, "last")
    templates = Templates()
    for path, module in (("train.py", False), ("pkg.mod", True), ("run.sh", False), ("trainer", False)):
        found = templates.command(name, job=job(*args, path=path, module=module), **GIVEN)
        assert found[-5:] == (path, *args)


@helpers.for_each({key: value for key, value in helpers.HOSTILE.items() if value})
def test_other_values_arrive_as_they_are(value: str) -> None:
    given = {**GIVEN, "master_addr": value, "master_port": value, "node_rank": value, "extra": (value, value)}
    found = Templates().command("torchrun/command.j2", job=job(text=value), **given)
    assert found == (
        "torchrun",
        "--nnodes=2",
        "--nproc_per_node=2",
        f"--node_rank={value}",
        f"--master_addr={value}",
        f"--master_port={value}",
        f"--rdzv_id={value}",
        "--rdzv_backend=static",
        value,
        value,
        "train.py",
    )


@helpers.for_each({key: value for key, value in helpers.HOSTILE.items() if value})  # no program is called "": the command line refuses it
def test_program_and_interpreter_arrive_as_they_are(value: str) -> None:
    found = Templates().command("plain/command.j2", job=job(path=f"{value}.py"))
    assert found == ("python", "-u", f"{value}.py")
    for name in ("pytorch", "tensorflow"):
        assert Templates().command(f"{name}/command.j2", job=job(), appended=(value,))[-1] == value


# What template authors may write


@pytest.mark.parametrize(
    ("source", "before", "after"),
    [
        ("x {{ v }} y", "", ""),
        ("x --a={{ v }} y", "--a=", ""),
        ("x pre{{ v }}post y", "pre", "post"),
        ("x '{{ v }}' y", "", ""),
        ('x "{{ v }}" y', "", ""),
        ('x "a b {{ v }} c" y', "a b ", " c"),
        ("x 'a b '{{ v }}' c' y", "a b ", " c"),
        ("x {{ v ~ '' }} y", "", ""),
        ("x {% if v is string %}{{ v }}{% endif %} y", "", ""),
        ("x {% set w = v %}{{ w }} y", "", ""),
        ("x {% for w in [v] %}{{ w }}{% endfor %} y", "", ""),
        ("x {{ [v] }} y", "", ""),
        ("x {{ [v] | join }} y", "", ""),
        ("x {% filter trim %} --a={{ v }} {% endfilter %} y", "--a=", ""),
        ("x\n  {{ v }}\ny\n", "", ""),
    ],
)
def test_a_value_is_one_word(source: str, before: str, after: str, tmp_path: Path) -> None:
    (tmp_path / "t.j2").write_text(source, encoding="utf-8")
    templates = Templates([str(tmp_path)])

    def check(value: str) -> None:
        assert templates.command("t.j2", v=value) == ("x", f"{before}{value}{after}", "y")

    helpers.check_each(check, helpers.HOSTILE)


@pytest.mark.parametrize(
    ("source", "values", "expected"),
    [
        ("x {{ v }}", {"v": ()}, ("x",)),
        ("x {{ v }} y", {"v": ("a b", "", "c")}, ("x", "a b", "", "c", "y")),
        ("x {{ v }}", {"v": [1, 2.5, True]}, ("x", "1", "2.5", "True")),
        ("x '{{ v }}'", {"v": ["a", "b"]}, ("x", "a", "b")),
        ("x {{ 1 }}{{ 2 }} {{ 'a b' }} {{ 3 + 4 }}", {}, ("x", "12", "a b", "7")),
        ("x {{ 'a' 'b c' }}{{ v }}", {"v": " d"}, ("x", "ab c d")),
        ("x --n={{ v | length }} {{ v | first }}", {"v": ["q r", "s"]}, ("x", "--n=2", "q r")),
        ("x # no comment {# a comment #}", {}, ("x", "#", "no", "comment")),
        ('x a\\ b "c d" \'e f\' g"h i"', {}, ("x", "a b", "c d", "e f", "gh i")),
        ("x {% raw %}{{ v }}{% endraw %}", {}, ("x", "{{", "v", "}}")),
        ("x {{ v }}{{ v }}", {"v": "a b"}, ("x", "a ba b")),
        ("{{ v }} -c", {"v": "my program"}, ("my program", "-c")),
    ],
)
def test_words(source: str, values: dict[str, Any], expected: tuple[str, ...], tmp_path: Path) -> None:
    assert render(source, tmp_path, **values) == expected


@pytest.mark.parametrize("source", ["x y", "x {{ 'y' }}"])
def test_a_byte_order_mark_is_no_word(source: str, tmp_path: Path) -> None:
    assert render("\ufeff" + source, tmp_path) == ("x", "y")


def test_templates_are_not_confused_by_each_other(tmp_path: Path) -> None:
    (tmp_path / "a.j2").write_text("a {{ v }} {% include 'b.j2' %}", encoding="utf-8")
    (tmp_path / "b.j2").write_text("b {{ v }} {{ w }}", encoding="utf-8")
    templates = Templates([str(tmp_path)])
    for _ in range(2):
        assert templates.command("a.j2", v="1 2", w=("3",)) == ("a", "1 2", "b", "1 2", "3")
        assert templates.command("b.j2", v="4", w=()) == ("b", "4")


@pytest.mark.parametrize(
    "source",
    [
        "{% macro m(w) %}--a={{ w }}{% endmacro %}x {{ m(v) }}",
        "x {% set w %}--a={{ v }}{% endset %}{{ w }}",
        "{% macro n(w) %}{{ caller(w) }}{% endmacro %}x {% call(w) n(v) %}--a={{ w }}{% endcall %}",
    ],
)
def test_pieces_of_templates_can_be_reused(source: str, tmp_path: Path) -> None:
    assert render(source, tmp_path, v="b c") == ("x", "--a=b c")


def test_a_template_can_extend_another(tmp_path: Path) -> None:
    (tmp_path / "base.j2").write_text("x {% block more %}--a={{ v }}{% endblock %}", encoding="utf-8")
    assert render("{% extends 'base.j2' %}{% block more %}{{ super() }} --b{% endblock %}", tmp_path, v="c d") == ("x", "--a=c d", "--b")


def test_blocks_can_be_replaced(tmp_path: Path) -> None:
    (tmp_path / "base.j2").write_text("x {% block more %}--a={{ v }}{% endblock %} y", encoding="utf-8")
    assert render("{% extends 'base.j2' %}{% block more %}--b={{ v }}{% endblock %}", tmp_path, v="c d") == ("x", "--b=c d", "y")


# Mistakes


@pytest.mark.parametrize(
    ("source", "values", "line", "said"),
    [
        ("x\n{{ v }}", {}, 2, "'v' is undefined"),
        ("x\n\n--a={{ v.b }}", {"v": 1}, 3, "has no attribute 'b'"),
        ("x {{ v['b'] }}", {"v": {}}, 1, "has no attribute 'b'"),
        ("x\n{{ v + 1 }}", {"v": "a"}, 2, "can only concatenate str"),
        ("x\n{{ 1 / 0 }}", {}, 2, "division by zero"),
        ("x\n{% if v %}", {"v": 1}, 2, "Unexpected end of template"),
        ("x\n{{ v }", {"v": 1}, 2, "unexpected '}'"),
        ("x\n{{ v | shellquote }}", {"v": 1}, 2, "No filter named 'shellquote'"),
        ("x\n{% for i in v %}{{ i }}{% endfor %}", {"v": 1}, 2, "not iterable"),
        # The sandbox.
        ("x\n{{ v.__class__ }}", {"v": ""}, 2, "unsafe"),
        ("x\n{{ ''.__class__.__mro__ }}", {}, 2, "unsafe"),
        ("x\n{{ v.append(1) }}", {"v": []}, 2, "unsafe"),
        ("x\n{% for i in range(999999999) %}{% endfor %}", {}, 2, "Range too big"),
    ],
)
def test_a_mistake_has_its_file_and_line(source: str, values: dict[str, Any], line: int, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        render(source, tmp_path, **values)
    assert str(caught.value).startswith(f"template {tmp_path}/t.j2, line {line}: ")
    assert said in str(caught.value)


def test_a_mistake_in_an_included_template_has_its_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "inner.j2").write_text("\n\n{{ nothing }}", encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        render("x\n{% include 'inner.j2' %}", tmp_path)
    assert str(caught.value) == f"template {tmp_path}/inner.j2, line 3: 'nothing' is undefined"


@pytest.mark.parametrize(
    ("source", "values", "said"),
    [
        ("{# nothing #}", {}, "renders to no command"),
        ("''", {}, "renders to no command"),
        ("{{ v }}", {"v": ""}, "renders to no command"),
        ("{{ v }}", {"v": ()}, "renders to no command"),
        ("x 'open", {}, "No closing quotation"),
        ("x {{ v }}", {"v": "a\0b"}, "NUL"),
        ("x {{ v }}", {"v": ["a\0b"]}, "NUL"),
        ("x --a={{ v }}", {"v": ["a"]}, "a list must stand alone"),
        ("x {{ v }}{{ v }}", {"v": ["a"]}, "a list must stand alone"),
        ("x {{ v }}", {"v": None}, "a NoneType cannot be put into a word"),
        ("x {{ v }}", {"v": {}}, "a dict cannot be put into a word"),
        ("x {{ v }}", {"v": [["a"]]}, "a list cannot be put into a word"),
        ("x {{ v.items }}", {"v": {}}, "cannot be put into a word"),
        ("x {% include 'gone.j2' %}", {}, "gone.j2: not found"),
    ],
)
def test_a_mistake_in_the_words(source: str, values: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        render(source, tmp_path, **values)
    assert said in str(caught.value)
    assert "t.j2" in str(caught.value) or "gone.j2" in str(caught.value)


@pytest.mark.parametrize("source", ["x 'open", "x --a={{ ['a'] }}", "{# nothing #}"])
def test_a_mistake_in_the_words_has_its_file(source: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        render(source, tmp_path)
    assert f"{tmp_path}/t.j2" in str(caught.value)


def test_a_template_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.j2").write_bytes(b"x \xff\xfe")
    with pytest.raises(ConfigError, match=r"template .*t\.j2"):
        Templates([str(tmp_path)]).command("t.j2")


def test_an_unknown_template_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"template no/such\.j2: not found"):
        Templates().command("no/such.j2")


def test_no_template_reaches_out_of_its_folders(tmp_path: Path) -> None:
    (tmp_path / "secret.j2").write_text("x", encoding="utf-8")
    (tmp_path / "templates").mkdir()
    with pytest.raises(ConfigError, match="not found"):
        render("{% include '../secret.j2' %}", tmp_path / "templates")


def test_own_folders_come_before_the_shipped_one(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name / "plain").mkdir(parents=True)
        (tmp_path / name / "plain" / "command.j2").write_text(f"{name} {{{{ job.name }}}}", encoding="utf-8")
    folders = [str(tmp_path / "first"), str(tmp_path / "second")]
    assert Templates(folders).command("plain/command.j2", job=job()) == ("first", "j")
    assert Templates(folders[1:]).command("plain/command.j2", job=job()) == ("second", "j")
    assert Templates(folders).command("spawn/command.j2", job=job()) == ("python", "-u", "train.py")
    (tmp_path / "first" / "program.j2").write_text("mine {{ job.program.words }}", encoding="utf-8")
    assert Templates(folders).command("spawn/command.j2", job=job()) == ("mine", "train.py")


# One-line templates in settings


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("[rank {{ rank }}] ", "[rank 3] "),
        ("", ""),
        ("{{ node }}:{{ local_rank }} {{ host }}|", "1:0 h 1|"),
        ("{{ '%02d' | format(rank) }} ", "03 "),
        ("{% if rank == 3 %}three {% endif %}", "three "),
        ("\x1b[3{{ rank % 8 }}m{{ rank }}\x1b[0m ", "\x1b[33m3\x1b[0m "),
    ],
)
def test_inline(source: str, expected: str) -> None:
    assert Templates().inline(source, "RANKLAUNCH_LOG_TAG", rank=3, node=1, local_rank=0, host="h 1") == expected


@pytest.mark.parametrize(
    "source", ["{{ rnak }}", "{{ rank", "{% if %}", "{{ [rank] }}", "{{ rank.__class__ }}", "{{ none }}", "{{ 1 / 0 }}"]
)
def test_a_mistake_in_an_inline_template_names_the_setting(source: str) -> None:
    with pytest.raises(ConfigError, match=r"^template RANKLAUNCH_LOG_TAG"):
        Templates().inline(source, "RANKLAUNCH_LOG_TAG", rank=3)


def test_shown_commands_split_back_into_their_words() -> None:
    """plan shows commands with shlex.quote: what is shown can be pasted."""
    for value in helpers.HOSTILE.values():
        assert shlex.split(shlex.quote(value)) == [value]


def test_without_its_own_templates(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As in a zipapp, out of which nothing opens them as files."""
    monkeypatch.setattr(templates, "SHIPPED", str(tmp_path / "ranklaunch.pyz" / "templates"))
    with pytest.raises(ConfigError, match="it seems to run from an archive"):
        templates.Templates().command("plain/command.j2")


@helpers.for_each({"a folder": Path.mkdir, "a link to nothing": lambda path: path.symlink_to("gone")})
def test_what_is_no_file_is_not_passed_over(make: Callable[[Path], None]) -> None:
    """The shipped template in its place would start something else than what was meant."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "plain").mkdir()
        make(Path(folder, "plain/command.j2"))
        with pytest.raises(ConfigError, match=r"plain/command.j2: expected a file, or a link to one"):
            Templates([folder]).command("plain/command.j2", job=job())


def test_a_folder_of_the_users_is_not_searched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It may be the program's own, with its data below it."""
    searched: list[str] = []
    walk = os.walk
    monkeypatch.setattr(os, "walk", lambda top, **how: searched.append(os.fspath(top)) or walk(top, **how))
    assert "spawn/command.j2" in Templates([str(tmp_path)]).shipped
    assert searched == [SHIPPED]
