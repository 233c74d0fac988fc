"""The tables of the machines are whole, and the page shows them as they are."""

from __future__ import annotations

import inspect
from collections.abc import Iterable

import helpers
import pytest

from ranklaunch.muster import events, hub, member
from ranklaunch.muster.events import NO, REFUSED, TAKEN, Event, Heard, Key, Machine

MACHINES = {"hub": (hub.Hub, hub.STATES, hub.TABLE), "member": (member.Member, member.STATES, member.TABLE)}
PAGE = helpers.ROOT / "docs" / "muster-states.md"


def words(name: str) -> set[str]:
    return {word for row in MACHINES[name][2].values() for word in row} - {NO, TAKEN, REFUSED}


def done(machine: type[Machine], word: str) -> str:
    """What it does, in one line of its own."""
    return " ".join((inspect.getdoc(getattr(machine, f"_{word}")) or "").split())


def row(key: Key) -> str:
    return f"`{key}`" if isinstance(key, str) else key.__name__


def shown(name: str) -> Iterable[str]:
    """The table as the page has it, and what the words in it mean."""
    machine, states, table = MACHINES[name]
    yield f"| what comes | {' | '.join(states)} | of another round |"
    yield f"|{' --- |' * (len(states) + 2)}"
    for key, cells in table.items():
        told = [word.replace("_", " ") for word in cells]
        yield f"| {row(key)} | {' | '.join([*told, *([''] if len(told) == len(states) else [])])} |".replace("|  |", "| |")
    yield ""
    for word in dict.fromkeys(word for cells in table.values() for word in cells if word in words(name)):
        yield f"- *{word.replace('_', ' ')}*: {done(machine, word)}"


@pytest.mark.parametrize("name", MACHINES)
def test_the_page_shows_the_table(name: str) -> None:
    assert "\n".join(shown(name)) in PAGE.read_text(encoding="utf-8"), "\n" + "\n".join(shown(name))


@pytest.mark.parametrize("name", MACHINES)
def test_a_table_has_a_cell_for_each_state(name: str) -> None:
    _, states, table = MACHINES[name]
    for key, cells in table.items():
        assert len(cells) == len(states) + isinstance(key, str), key
        assert {*cells[: len(states)]} <= {*words(name), NO}
        assert not isinstance(key, str) or cells[-1] in (TAKEN, REFUSED)


@pytest.mark.parametrize("name", MACHINES)
def test_each_word_is_something_that_the_machine_does(name: str) -> None:
    machine = MACHINES[name][0]
    for word in words(name):
        assert done(machine, word), word


def test_each_event_stands_in_a_table() -> None:
    """What was heard stands there by the type of the message."""
    known = {key for _, _, table in MACHINES.values() for key in table if not isinstance(key, str)}
    assert known == {*Event.__subclasses__()} - {Heard}


def test_what_one_side_says_is_what_the_other_hears() -> None:
    """By the text of the modules."""
    for name, other in (("hub", member.TABLE), ("member", hub.TABLE)):
        modules = (hub, events) if name == "hub" else (member, events)
        text = "".join(map(inspect.getsource, modules))
        for kind in (key for key in other if isinstance(key, str)):
            assert f'"type": "{kind}"' in text or f'judgement_message("{kind}"' in text, kind
