"""Hints for unknown keys: our key for another tool's word, the same word in another group, or the nearest spelling."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping

from ranklaunch.errors import nearest
from ranklaunch.specs.rules import rules

# Names with another meaning in each group.
AMBIGUOUS = {
    "action", "count", "enabled", "file", "kind", "label", "name", "port", "resource", "rules", "seconds", "secretname", "signal", "source",
}  # fmt: skip
# Names in other charts, engines and launchers, without case, dashes and underscores, each with the advice about it.
FAMILIAR: Mapping[str, str] = {name: advice for advice, names in rules()["familiar"].items() for name in names.split()}


def hint(path: str, known: Iterable[str], legal: Iterable[str] = ()) -> str:
    """Return the end of the message about an unknown key.

    known: the paths of all keys. legal: the names of the keys in the same group.
    """
    name = plain(path.rpartition(".")[2])
    places = index(known)
    for word in (plain(path), name):
        if word in FAMILIAR or word in places:
            return f"; here it is {FAMILIAR.get(word) or places[word]}"
    near = difflib.get_close_matches(name, places, n=1, cutoff=0.8)
    if near:
        return f", did you mean '{places[near[0]]}'?"
    near = difflib.get_close_matches(name, FAMILIAR, n=1, cutoff=0.8)
    return f"; here it is {FAMILIAR[near[0]]}" if near else nearest(name, legal)


def word(path: str, value: str, legal: Iterable[str]) -> str:
    """Return the hint for an illegal word: our word for the same thing in other tools, or the nearest legal word."""
    meant = next((ours for ours, theirs in rules()["meant"].get(path, {}).items() if value.lower() in theirs.split()), "")
    return f", did you mean '{meant}'?" if meant else nearest(value, legal)


def meant(name: str, known: Iterable[str]) -> str:
    """Return the key for a name of other tools, "" without one."""
    return FAMILIAR.get(plain(name)) or index(known).get(plain(name), "")


def index(known: Iterable[str]) -> dict[str, str]:
    """Return paths by the plain form of their last part. Of two paths with one name, the path with fewer parts counts."""
    places: dict[str, str] = {}
    for path in sorted(known, key=lambda each: each.count(".")):
        places.setdefault(plain(path.rpartition(".")[2]), path)
    return {word: path for word, path in places.items() if word not in AMBIGUOUS}


def plain(name: str) -> str:
    """Without what differs from habit to habit."""
    return re.sub("[-_]", "", name).lower()
