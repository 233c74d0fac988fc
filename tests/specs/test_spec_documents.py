"""Files of values that a parser would take and that nobody meant: each is refused by name, and soon."""

from __future__ import annotations

import json
from pathlib import Path

import helpers
import pytest

from ranklaunch.specs.values import Values

JOB = ("job", "--name", "llm", "--image", "train:1")
DEEP = 2000
BOMB = "volumes:\n- name: d\n  a0: &a0 x\n" + "".join(
    f"  a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]\n" for level in range(1, 11)
)


def refused(tmp_path: Path, text: str, suffix: str, *argv: str) -> str:
    path = tmp_path / f"values.{suffix}"
    path.write_text(text, encoding="utf-8")
    found = helpers.call("spec", *JOB, "--values", str(path), *argv, "--", "train.py")
    assert (found.code, found.out) == (78, ""), found.err
    assert f"values.{suffix}: " in found.err
    assert "Traceback" not in found.err
    return found.err


YAML = [
    ("volumes:\n- &v {name: d, self: *v}\n", "volumes.0.self: the value that begins in line 2 contains itself"),
    ("env: &v {A: *v}\n", "env.A: the value that begins in line 1 contains itself"),
    ("scheduling: &s\n  affinity: {podAffinity: [*s]}\n", "scheduling.affinity.podAffinity.0: the value that begins in line 1"),
    ("env: &v {<<: *v, A: x}\n", "env.<<: the value that begins in line 1 contains itself"),
    (BOMB, "volumes.0.a6: more than 100000 values, with every alias expanded"),
    (f"args: [{'x,' * 100_001}]\n", "more than 100000 values\n"),
    ("nodes: 2\nname: x\nnodes: 4\n", "nodes: given twice, in lines 1 and 3"),
    ("env:\n  A: x\n  'A': y\n", "env.A: given twice, in lines 2 and 3"),
    ("volumes:\n- {name: a, name: b}\n", "volumes.0.name: given twice"),
    ("args: " + "[" * DEEP + "]" * DEEP, "nested too deeply"),
    ("args: " + "[" * 101 + "]" * 101, "nested too deeply, expected at most 100"),
    ("nodes: !!int ''\n", "not YAML"),
    ("nodes: !!bool 3\n", "not YAML"),
    ("nodes: !!timestamp 3\n", "not YAML"),
    ("nodes: !!python/object/apply:os.system [true]\n", "not YAML"),
    ("nodes: !!timestamp 2026-13-13\n", "not YAML"),
    ("nodes: !!int 1:30\n", "not YAML"),
    ("? [a]\n: 1\n", "not YAML"),
    ("a: 1\n---\nb: 1\n", "not YAML"),
    ("nodes: *v\n", "not YAML"),
    ("name: \0x\n", "not YAML: unacceptable character #x0000: special characters are not allowed\n"),
]


@pytest.mark.specs
@pytest.mark.parametrize(("text", "message"), YAML, ids=[text[:40] for text, _ in YAML])
def test_yaml_that_nobody_meant(text: str, message: str, tmp_path: Path) -> None:
    assert message in refused(tmp_path, text, "yaml")


JSON = [
    ('{"nodes": 2, "nodes": 4}', "'nodes' is given twice in one map"),
    ('{"env": {"A": "1", "B": "2", "B": "3"}}', "'B' is given twice in one map"),
    ('{"args": ' + "[" * DEEP * 50 + "]" * DEEP * 50 + "}", "nested too deeply"),
    ('{"volumes": [' + '{"a":' * 900 + "1" + "}" * 900 + "]}", "nested too deeply"),
    ("{'nodes': 2}", "not JSON"),
    ("", "not JSON"),
]


@pytest.mark.parametrize(("text", "message"), JSON, ids=[text[:40] for text, _ in JSON])
def test_json_that_nobody_meant(text: str, message: str, tmp_path: Path) -> None:
    assert message in refused(tmp_path, text, "json")


def test_a_number_of_many_digits(tmp_path: Path) -> None:
    """Newer Pythons read none of so many, older ones do."""
    path = tmp_path / "values.json"
    path.write_text(f'{{"nodes": {"9" * 5000}}}', encoding="utf-8")
    found = helpers.call("spec", *JOB, "--values", str(path), "--", "train.py")
    assert (found.code, found.out) == (78, ""), found.err
    assert "set_int_max_str_digits" not in found.err


@pytest.mark.specs
@helpers.numbers_have_a_limit
def test_a_number_of_many_digits_in_yaml(tmp_path: Path) -> None:
    assert refused(tmp_path, f"nodes: {'9' * 5000}\n", "yaml").endswith("values.yaml: a number in it has thousands of digits\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('env={"A": "1", "A": "2"}', 'option --set env=\'{"A": "1", "A": "2"}\': \'A\' is given twice in one map'),
        ("volumes=" + "[" * 101 + "]" * 101, "nested too deeply"),
        ("volumes=" + "[" * 100_000, "nested too deeply"),
    ],
)
def test_options_that_nobody_meant(text: str, message: str) -> None:
    found = helpers.call("spec", *JOB, "--set", text, "--", "train.py")
    assert (found.code, found.out) == (2, "")
    assert message in found.err


@pytest.mark.specs
def test_names_that_are_no_texts(tmp_path: Path) -> None:
    path = tmp_path / "values.yaml"
    for text, name in (
        ("env: {!!timestamp 2026-01-01: x}", "env"),
        ("volumes: [{!!timestamp 2026-01-01: x}]", "volumes"),
        ("labels: {1: x}", "labels"),
    ):
        path.write_text(text, encoding="utf-8")
        found = helpers.call("spec", *JOB, "--values", str(path), "--", "train.py")
        assert (found.code, found.out) == (78, "")
        assert f"ranklaunch: {name}{':' if name == 'env' else '='}" in found.err


@pytest.mark.specs
def test_a_message_shows_no_value_of_the_environment(tmp_path: Path) -> None:
    path = tmp_path / "values.yaml"
    for text in (
        "env: [{name: DB_PASSWORD, value: hunter2secretvalue}]", "env: {DB_PASSWORD: [hunter2secretvalue]}",
        'env: "DB_PASSWORD: hunter2secretvalue"', "env:\n  DB_PASSWORD: @hunter2secretvalue",
    ):  # fmt: skip
        path.write_text(text, encoding="utf-8")
        found = helpers.call("spec", *JOB, "--values", str(path), "--", "train.py")
        assert (found.code, "hunter2" in found.err) == (78, False), found.err
    assert "cannot start any token (line 2, column 16)" in found.err


@pytest.mark.specs
def test_yaml_that_somebody_meant(tmp_path: Path) -> None:
    """Aliases and merges that end; = alone is a text, for which YAML 1.1 has a meaning of its own; a file without anything."""
    path = tmp_path / "values.yaml"
    path.write_text("args: [=, x]\nlabels: &l {a: b}\nannotations: {<<: *l, c: d}\nnodes: 3.0\n", encoding="utf-8")
    found = helpers.call("spec", *JOB, "--values", str(path))
    assert found.code == 78  # no program
    path.write_text(path.read_text(encoding="utf-8") + "script: train.py\n", encoding="utf-8")
    found = helpers.call("spec", *JOB, "--values", str(path))
    assert found.code == 0, found.err
    for text in ('args: ["train.py", "=", "x"]', "completions: 3\n", '"c": "d"'):
        assert text in found.out
    path.write_text("# nothing\n", encoding="utf-8")
    assert helpers.call("spec", *JOB, "--values", str(path), "--", "x").code == 0


@pytest.mark.specs
@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("lifecycle: {ttlSeconds: 1:30}", 78, "lifecycle.ttlSeconds='1:30': expected an integer"),
        ("lifecycle: {ttlSeconds: 1e3}", 0, "ttlSecondsAfterFinished: 1000\n"),
        ("lifecycle: {ttlSeconds: 0o17}", 0, "ttlSecondsAfterFinished: 15\n"),
        ("lifecycle: {ttlSeconds: 017}", 0, "ttlSecondsAfterFinished: 15\n"),
        ("image: {tag: 12e3}", 78, "image.tag='12000.0': expected a string"),
        ("image: {tag: 2026-11-24}", 0, 'image: "train:2026-11-24"\n'),
        ("args: [y]", 78, "args='[true]': expected a string"),
    ],
)
def test_text_without_quotes_is_what_helm_reads(text: str, code: int, said: str, tmp_path: Path) -> None:
    """Of all kinds, tests/charts/test_like_spec.py asks Helm."""
    path = tmp_path / "values.yaml"
    path.write_text(f"{text}\nscript: train.py\n", encoding="utf-8")
    found = helpers.call("spec", "job", "--name", "llm", "--set", "image.repository=train", "--values", str(path))
    assert found.code == code, found.err
    assert said in (found.err if code else found.out)


@pytest.mark.parametrize(("number", "code"), [(3.0, 0), (1e2, 0), (3.5, 78), (True, 78), ("3", 78)])
def test_whole_numbers_are_those_of_json_schema(number: object, code: int, tmp_path: Path) -> None:
    path = tmp_path / "values.json"
    path.write_text(json.dumps({"nodes": number}), encoding="utf-8")
    found = helpers.call("spec", *JOB, "--values", str(path), "--", "train.py")
    assert found.code == code, found.err
    assert code or f"completions: {int(float(str(number)))}\n" in found.out


@pytest.mark.parametrize(
    ("values", "told", "last"),
    [
        ({f"k{i}": 1 for i in range(5000)}, 21, "values: and 4980 more unknown keys"),
        ({"device": {f"k{i}": 1 for i in range(5000)}}, 21, "device: and 4980 more unknown keys"),
        ({"podTemplate": {f"k{i}": 1 for i in range(5000)}}, 21, "podTemplate: and more of these"),
    ],
)
def test_of_very_many_unknown_keys_the_first_are_told(values: dict[str, object], told: int, last: str, tmp_path: Path) -> None:
    path = tmp_path / "values.json"
    path.write_text(json.dumps(values), encoding="utf-8")
    found = helpers.call("spec", *JOB, "--values", str(path), "--", "train.py")
    lines = found.err.splitlines()
    assert (found.code, len(lines), lines[-1]) == (78, told, f"ranklaunch: {last}")


def test_a_value_within_itself_is_named_whoever_made_it() -> None:
    volume: dict[str, object] = {"name": "d"}
    volume["self"] = volume
    for values in ({"volumes": [volume]}, {"env": volume}):
        reading = Values()
        reading.spec(values)
        (problem,) = reading.problems
        assert problem.text.startswith(next(iter(values)))
