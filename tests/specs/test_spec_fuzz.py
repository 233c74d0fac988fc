"""Whatever is accepted comes out as objects whose program and environment are exactly the given ones; nothing else gets further."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from typing import Any

import pytest
import spec_cases
from hypothesis import given, settings
from hypothesis import strategies as st

from ranklaunch.render.templates import Templates
from ranklaunch.specs import keys, refuse, rendered
from ranklaunch.specs.model import KINDS, OF_KUBERNETES, JobSpec
from ranklaunch.specs.pod import DERIVED
from ranklaunch.specs.values import Values
from ranklaunch.specs.variables import is_removed

TEMPLATES = Templates()
TEXT = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), max_size=30) | st.sampled_from(
    ["$(HOME)", "$$", "$$(A)", "$(A", "'\"", "a: b", "- x", "---", "...", "#", "{{ x }}", "{% raw %}", "yes", "1e3", "\u2028", "🚀", "`x`"]
)
NAMES = st.from_regex(r"[A-Z_][A-Z0-9_]{0,8}", fullmatch=True).filter(lambda name: name not in DERIVED and not is_removed(name))


def is_one_word(script: str) -> bool:
    """Return False for what is refused as a program with its arguments in one text, or as an option."""
    return bool(script) and not script.startswith("-") and not re.search(r"\s-|(?:\.(?:py|sh)|^[a-z0-9.]+)\s", script)


@st.composite
def values(draw: st.DrawFn, kind: str) -> dict[str, Any]:
    device = "npu" if kind == "acjob" else draw(st.sampled_from(["gpu", "npu", "cpu"]))
    mode = "mpirun" if kind == "mpijob" else draw(st.sampled_from(["auto", "torchrun", "spawn", "plain"]))
    return {
        "engine": kind,
        "name": draw(st.from_regex(r"[a-z]([a-z0-9]{0,20})", fullmatch=True)),
        "mode": mode,
        "nodes": draw(st.integers(1, 40)),
        "devicesPerNode": draw(st.integers(1, 16)),
        "device": {"kind": device},
        "image": {"repository": "registry.example.com/train", "tag": draw(st.sampled_from(["", "1.0"]))},
        "script": draw(TEXT.filter(is_one_word)),
        "args": draw(st.lists(TEXT, max_size=5)),
        "env": draw(st.dictionaries(NAMES, TEXT, max_size=4)),
        "annotations": {} if kind in ("modelarts", "slurm") else {"example.com/note": draw(TEXT)},
        "modelarts": {"flavor": "some.flavor"} if kind == "modelarts" else {},
    }


def expanded(text: str, env: Mapping[str, str]) -> str:
    """As kubelet reads a text: $(NAME) is a variable where there is one, $$ is $."""
    return re.sub(r"\$(\$|\(([^)]*)\))", lambda found: "$" if found[1] == "$" else env.get(found[2], found[0]), text)


def told_by_pod(container: Mapping[str, Any]) -> tuple[list[str], dict[str, str]]:
    env: dict[str, str] = {}
    for variable in container["env"]:
        if "value" in variable:
            env[variable["name"]] = expanded(variable["value"], {**env, "A": "expanded", "HOME": "expanded"})
    words = [expanded(word, {**env, "A": "expanded", "HOME": "expanded"}) for word in [*container["command"], *container["args"]]]
    return words, env


def containers(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []

    def look(value: Any) -> None:
        if isinstance(value, dict):
            found.extend([value] if {"command", "args", "env"} <= value.keys() else [])
            for each in value.values():
                look(each)
        elif isinstance(value, list):
            for each in value:
                look(each)

    look(objects)
    return found


@pytest.mark.specs
@pytest.mark.parametrize("kind", OF_KUBERNETES)
@settings(deadline=None, max_examples=30)
@given(data=st.data())
def test_pods_are_told_exactly_what_was_given(kind: str, data: st.DataObject) -> None:
    wanted = data.draw(values(kind))
    found = containers(spec_cases.objects_in(text_of(wanted)))
    assert found
    for container in found:
        words, env = told_by_pod(container)
        assert words == ["ranklaunch", "run", "--", wanted["script"], *wanted["args"]]
        assert wanted["env"].items() <= env.items()
        assert set(env) - set(wanted["env"]) <= {*DERIVED, "RANKLAUNCH_GRACE_S"}


@settings(deadline=None, max_examples=50)
@given(data=st.data())
def test_modelarts_is_told_exactly_what_was_given(data: st.DataObject) -> None:
    wanted = data.draw(values("modelarts"))
    algorithm = json.loads(text_of(wanted))["algorithm"]
    assert shlex.split(algorithm["command"]) == ["ranklaunch", "run", "--", wanted["script"], *wanted["args"]]
    assert wanted["env"].items() <= algorithm["environments"].items()


@settings(deadline=None, max_examples=50)
@given(data=st.data())
def test_slurm_is_told_exactly_what_was_given(data: st.DataObject) -> None:
    wanted = data.draw(values("slurm"))
    text = text_of(wanted)
    words = shlex.split(text[text.index("\nvariables=(") :])
    told, command = words[1 : words.index("env") - 1], words[words.index("env") + 1 :]
    assert set(told) >= {f"{name}={value}" for name, value in wanted["env"].items()}
    given_words = ["ranklaunch", "run", "--", wanted["script"], *wanted["args"], "code=$?"]
    first = command.index("ranklaunch")  # before it are srun's own options
    assert command[:2] == ["${variables[@]}", "srun"]
    assert all(word.startswith("--") for word in command[2:first])
    assert command[first : first + len(given_words)] == given_words


def text_of(wanted: Mapping[str, Any]) -> str:
    reading = Values()
    spec = reading.spec(wanted)
    assert reading.problems == []
    assert refuse.problems(spec) == []
    return rendered(spec, TEMPLATES)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
PATHS = [path for path, _ in keys.every(JobSpec)]


@settings(deadline=None, max_examples=100)
@given(given_values=st.dictionaries(st.sampled_from(PATHS), JSON, max_size=6), kind=st.sampled_from(KINDS))
def test_nothing_that_can_be_written_is_a_defect(given_values: dict[str, Any], kind: str) -> None:
    nested: dict[str, Any] = {"name": "a", "script": "x", "image": {"repository": "r"}}
    for path, value in given_values.items():
        group, _, name = path.rpartition(".")
        place = nested
        for each in group.split(".") if group else ():
            place = place.setdefault(each, {}) if isinstance(place.setdefault(each, {}), dict) else {}
        place[name] = value
    nested["engine"] = kind
    reading = Values()
    spec = reading.spec(nested)
    assert all(problem.text for problem in reading.problems)
    if not reading.problems and not refuse.problems(spec):
        assert rendered(spec, TEMPLATES) == rendered(spec, TEMPLATES)


@settings(deadline=None, max_examples=100)
@given(given_values=JSON)
def test_any_tree_is_read_or_refused(given_values: Any) -> None:
    reading = Values()
    reading.spec(given_values)
    if given_values not in (None, {}) and not isinstance(given_values, dict):
        assert reading.problems
