"""One environment, typed, with provenance: what wins, what it overrode, and every problem at once."""

from __future__ import annotations

import time

import helpers
import pytest

from ranklaunch.env import parse
from ranklaunch.env.reader import Candidate, Reading, Variable
from ranklaunch.errors import ConfigError, UsageError

NODES = Variable(
    "nodes", ("RANKLAUNCH_NODES", "MA_NUM_HOSTS", "VC_WORKER_NUM"), parse.positive, 1, "number of nodes", "platform", "--nodes"
)
INDEX = Variable("index", ("RANKLAUNCH_NODE", "MA_TASK_INDEX", "VC_TASK_INDEX"), parse.count, 0, "index", "platform", "--node", agree=True)
PLAIN = Variable("plain", ("PLAIN",), parse.text, "fallback", "any text", default_text="what is there")
TOKEN = Variable("token", ("RANKLAUNCH_API_TOKEN",), parse.text, "", "a secret")

ALL = {"RANKLAUNCH_NODES": "3", "MA_NUM_HOSTS": "2", "VC_WORKER_NUM": "1"}


@pytest.mark.parametrize(
    ("env", "options", "value", "source", "overrides"),
    [
        ({}, {}, 1, "default", []),
        ({"VC_WORKER_NUM": "5"}, {}, 5, "VC_WORKER_NUM", []),
        ({"VC_WORKER_NUM": "5", "MA_NUM_HOSTS": "2"}, {}, 2, "MA_NUM_HOSTS", [("VC_WORKER_NUM", "5")]),
        (ALL, {}, 3, "RANKLAUNCH_NODES", [("MA_NUM_HOSTS", "2"), ("VC_WORKER_NUM", "1")]),
        (ALL, {"nodes": "4"}, 4, "option --nodes", [("RANKLAUNCH_NODES", "3"), ("MA_NUM_HOSTS", "2"), ("VC_WORKER_NUM", "1")]),
        # Empty is unset, for platforms that set every variable whether they have a value or not.
        ({"RANKLAUNCH_NODES": "", "MA_NUM_HOSTS": " \t", "VC_WORKER_NUM": "7"}, {"nodes": ""}, 7, "VC_WORKER_NUM", []),
        ({"OTHER": "7"}, {"other": "9"}, 1, "default", []),
    ],
)
def test_the_highest_source_wins(
    env: dict[str, str], options: dict[str, str], value: int, source: str, overrides: list[tuple[str, str]]
) -> None:
    reader = helpers.reader(env, **options)
    assert reader.get(NODES) == value
    assert reader.ledger.readings == (Reading("nodes", str(value), source, tuple(Candidate(*each) for each in overrides)),)
    assert reader.is_set(NODES) is (source != "default")
    reader.check()


def test_a_default_is_noted_and_described() -> None:
    reader = helpers.reader()
    assert reader.get(PLAIN) == "fallback"
    assert reader.ledger.reading("plain") == Reading("plain", "fallback", "default")
    assert PLAIN.shown_default == "what is there"
    assert NODES.shown_default == "1"
    assert reader.ledger.reading("unread") is None


def test_every_problem_is_raised_at_once_and_once() -> None:
    reader = helpers.reader({"MA_NUM_HOSTS": "four", "MA_TASK_INDEX": "-1"})
    assert reader.get(NODES) == 1
    assert reader.get(NODES) == 1
    assert reader.get(INDEX) == 0
    reader.problem("of another kind")
    with pytest.raises(ConfigError) as caught:
        reader.check()
    assert caught.value.problems == (
        "MA_NUM_HOSTS='four': expected a whole number from 1 to 1000000 (number of nodes; set by the platform)",
        "MA_TASK_INDEX='-1': expected a whole number from 0 to 1000000 (index; set by the platform)",
        "of another kind",
    )
    assert caught.value.exit_code == 78


@pytest.mark.parametrize(
    ("env", "who"),
    [({"RANKLAUNCH_NODES": "x"}, "set by the user"), ({"MA_NUM_HOSTS": "x"}, "set by the platform")],
)
def test_a_problem_says_who_sets_the_variable(env: dict[str, str], who: str) -> None:
    reader = helpers.reader(env)
    reader.get(NODES)
    with pytest.raises(ConfigError, match=who):
        reader.check()


def test_a_wrong_option_is_a_wrong_command_line() -> None:
    reader = helpers.reader(nodes="x")
    reader.get(NODES)
    with pytest.raises(UsageError, match="option --nodes='x': expected a whole number"):
        reader.check()
    reader.problem("and the environment is wrong, too")
    with pytest.raises(ConfigError):
        reader.check()


@pytest.mark.parametrize(
    ("env", "options", "agrees"),
    [
        ({"MA_TASK_INDEX": "1", "VC_TASK_INDEX": "1"}, {}, True),
        ({"MA_TASK_INDEX": "1", "VC_TASK_INDEX": "01"}, {}, True),
        ({"MA_TASK_INDEX": "1", "VC_TASK_INDEX": ""}, {}, True),
        ({"MA_TASK_INDEX": "1", "VC_TASK_INDEX": "2"}, {}, False),
        # These are meant to override.
        ({"RANKLAUNCH_NODE": "0", "MA_TASK_INDEX": "1", "VC_TASK_INDEX": "2"}, {}, True),
        ({"MA_TASK_INDEX": "1", "VC_TASK_INDEX": "2"}, {"index": "0"}, True),
    ],
)
def test_variables_that_must_agree(env: dict[str, str], options: dict[str, str], agrees: bool) -> None:
    reader = helpers.reader(env, **options)
    reader.get(INDEX)
    if agrees:
        reader.check()
        return
    with pytest.raises(ConfigError) as caught:
        reader.check()
    assert str(caught.value) == "MA_TASK_INDEX='1' contradicts VC_TASK_INDEX='2' (index); unset the wrong one or set RANKLAUNCH_NODE"


def test_a_malformed_value_is_no_contradiction_besides() -> None:
    reader = helpers.reader({"MA_TASK_INDEX": "1", "VC_TASK_INDEX": "x"})
    assert reader.get(INDEX) == 1
    reader.check()


def test_secrets_are_hidden_in_provenance_and_problems() -> None:
    reader = helpers.reader({"RANKLAUNCH_API_TOKEN": "hunter2\0"})
    reader.get(TOKEN)
    assert reader.ledger.reading("token") == Reading("token", "***", "RANKLAUNCH_API_TOKEN")
    with pytest.raises(ConfigError) as caught:
        reader.check()
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("value", ["https://user:hunter2@host/", "--api_key=hunter2", "--api_key hunter2"])
def test_secrets_within_a_value_are_hidden_in_provenance(value: str) -> None:
    reader = helpers.reader({"PLAIN": value})
    reader.get(PLAIN)
    reading = reader.ledger.reading("plain")
    assert reading
    assert "hunter2" not in reading.value


def test_a_quoted_secret_is_hidden_whole() -> None:
    reader = helpers.reader({"PLAIN": "--password 'one hunter2' --lr 1"})
    reader.get(PLAIN)
    reading = reader.ledger.reading("plain")
    assert reading
    assert "hunter2" not in reading.value


def test_long_values_are_clipped_in_provenance_and_problems() -> None:
    reader = helpers.reader({"PLAIN": "x" * 100_000, "MA_NUM_HOSTS": "9" * 100_000})
    assert reader.get(PLAIN) == "x" * 100_000
    reading = reader.ledger.reading("plain")
    assert reading
    assert len(reading.value) < 200
    reader.get(NODES)
    with pytest.raises(ConfigError) as caught:
        reader.check()
    assert len(str(caught.value)) < 400


def test_long_values_are_read_in_no_time() -> None:
    reader = helpers.reader({"PLAIN": ",".join(helpers.hosts(10_000))})
    started = time.process_time()
    reader.get(PLAIN)
    assert time.process_time() - started < 0.5


def test_warnings_are_kept_once_and_in_order() -> None:
    reader = helpers.reader()
    for text in ("b", "a", "b"):
        reader.warn(text)
    assert reader.warnings == ["b", "a"]
