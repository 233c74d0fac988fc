"""Comparison of the starts of ranks on all nodes: the program's arguments, and the variables for communication.

Every node sends its own as facts; a node that starts no ranks sends none and is not compared. If the texts of nodes differ, a second
comparison leaves out each node's own name, address and index: these may stand in its texts.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar, Union

from ranklaunch import errors
from ranklaunch.env import settings
from ranklaunch.env.reader import Reader
from ranklaunch.plan.facts import digest, short
from ranklaunch.plan.model import Plan
from ranklaunch.redact import redact

ARGUMENTS = "arguments"
PROGRAM = "program"  # whose arguments are its own, where nodes may have different ones
ALL = "all"  # in allowed: everything may differ but what is fixed
MOST_ARGUMENTS = 8192  # characters; what comes after them is compared by its digest
_COMMUNICATION = re.compile(r"(?:NCCL|HCCL|GLOO|TORCH)_\w+")
# Of these families, what ranks have to agree on: which algorithm, over what.
_STEERS = re.compile(
    r"[A-Z]+_(?:\w+_)?(?:ALGO|PROTO|DISABLED?|ENABLED?|NET|TRANSPORT|DETERMINISTIC|BUFFSIZE|NTHREADS)|HCCL_OP_EXPANSION_MODE"
)
_RUN = re.compile(r"[\w-]{20,}")  # no known token has less
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?")
_NUMBER = re.compile(r"(?<![0-9])(?<![0-9]\.)[0-9]+(?!\.?[0-9])")
# An id of Kubernetes, which makes them at random, or the private key of an MPIJob.
UNGUESSABLE = r"(?i)\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b|PRIVATE KEY-"
_ADDRESS = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}|[0-9A-Fa-f]*:[0-9A-Fa-f:.]+")

T = TypeVar("T")
Piece = Union[int, str]  # an argument, by its place, or a variable


def of_ranks(plan: Plan, env: Mapping[str, str], args: Sequence[str] | None = None) -> dict[str, str]:
    """Return the facts of this node. env: inherited by its processes. args: the program's arguments in the same words on all
    nodes, if the plan's differ. The ps of a job have arguments of their own: only its workers are compared."""
    if not plan.processes or plan.job.node.task == "ps":
        return {}
    process = plan.processes[0]
    inherited = {name: value for name, value in env.items() if name not in process.unset}
    match = {name: value for name, value in sorted({**inherited, **process.env}.items()) if _COMMUNICATION.fullmatch(name)}
    return {
        ARGUMENTS: _arguments(plan.job.program.args if args is None else args),
        **{name: short(value) for name, value in redact.environment(match).items()},
    }


def _arguments(words: Sequence[str]) -> str:
    text = shlex.join(short(_without_tokens(word)) for word in redact.argv(words))
    return text if len(text) <= MOST_ARGUMENTS else f"{text[:MOST_ARGUMENTS].rpartition(' ')[0]} {digest(text)}"


def _without_tokens(word: str) -> str:
    """Tokens are known by their form too; the patterns are loaded where a word may have one."""
    may = any(any(map(str.isdigit, run)) for run in _RUN.findall(word))
    return errors.quoted((word,))[0] if may else word


def is_of_ranks(name: str) -> bool:
    """Return True for a fact that is compared here."""
    return name == ARGUMENTS or bool(_COMMUNICATION.fullmatch(name))


class Teller:
    """Node with its names. address: source of its connection, "" for node 0 itself."""

    def __init__(self, index: int, names: Iterable[str], address: str) -> None:
        whole = {name for name in names if name}
        self.number = index
        self._names = whole | {name.partition(".")[0] for name in whole if not _ADDRESS.fullmatch(name)}
        self._address = address.replace("::ffff:", "") if _ADDRESS.fullmatch(address) else ""

    def readings(self, text: str, may_be_index: bool) -> tuple[str, str, str]:
        """As it is, without the node's own name and address, and without its index too, which other numbers may equal."""
        masked = text.replace(self._address, "<address>") if ":" in self._address else text
        if not self._address or self._address in text or any(name in text for name in self._names):
            masked = _NAME.sub(lambda match: self._called(match[0]), masked)
        if not may_be_index or str(self.number) not in masked:
            return text, masked, masked
        return text, masked, _NUMBER.sub(lambda match: "<index>" if match[0] == str(self.number) else match[0], masked)

    def _called(self, word: str) -> str:
        mine = word == self._address or (not self._address and _ADDRESS.fullmatch(word))
        return "<address>" if mine else "<host>" if word in self._names else word


class Agreement:
    """Facts of all nodes with a report. allowed: names of facts that may differ."""

    def __init__(self, allowed: Collection[str] = ()) -> None:
        self._allowed = allowed
        self._told: dict[str, tuple[Teller, dict[Piece, str]]] = {}
        self._wholes: Counter[frozenset[tuple[Piece, str]]] = Counter()
        self._counted: set[str] = set()
        self._tellers: Counter[Piece] = Counter()
        self._readings: dict[Piece, tuple[Counter[str], ...]] = {}

    def add(self, instance: str, teller: Teller, facts: Mapping[str, str]) -> None:
        """facts: all that a node tells."""
        if ARGUMENTS not in facts or ALL in self._allowed:
            return
        pieces = dict(self._pieces(facts))
        self._told[instance] = (teller, pieces)
        self._wholes[frozenset(pieces.items())] += 1
        if self._counted:
            self._count(instance, 1)
        elif len(self._wholes) > 1:  # pieces take time, and are not needed where all say the same
            for node in self._told:
                self._count(node, 1)

    def remove(self, instance: str) -> None:
        if instance not in self._told:
            return
        if instance in self._counted:
            self._count(instance, -1)
        _take(self._wholes, frozenset(self._told.pop(instance)[1].items()), -1)

    @property
    def differ(self) -> bool:
        """Return True if nodes differ in a fact that makes the job wrong."""
        return any(True for _ in self._differing(steers=True))

    def problems(self, steers: bool = True) -> Iterator[tuple[str, dict[str | None, list[int]]]]:
        """Yield each differing fact, with the nodes behind each of its values.

        steers: True for facts that make the job wrong, False for the remaining ones.
        """
        pieces = list(self._differing(steers))
        places = sorted(piece for piece in pieces if isinstance(piece, int))
        if places:
            yield ARGUMENTS, self._said(lambda known: _at(known, places))
        yield from ((name, self._said(_variable(name))) for name in sorted(piece for piece in pieces if isinstance(piece, str)))

    def _pieces(self, facts: Mapping[str, str]) -> Iterator[tuple[Piece, str]]:
        if not {ARGUMENTS, PROGRAM} & {*self._allowed}:
            yield from enumerate(_words(facts[ARGUMENTS]))
        yield from ((name, value) for name, value in facts.items() if _COMMUNICATION.fullmatch(name) and name not in self._allowed)

    def _count(self, instance: str, by: int) -> None:
        teller, pieces = self._told[instance]
        (self._counted.add if by > 0 else self._counted.discard)(instance)
        for piece, text in pieces.items():
            self._tellers[piece] += by
            if piece not in self._readings:
                self._readings[piece] = (Counter(), Counter(), Counter())
            # A 0 on node 0 and a 1 on node 1 are what a switch of NCCL has, and no index.
            for counter, reading in zip(self._readings[piece], teller.readings(text, isinstance(piece, int) or not _steers(piece))):
                _take(counter, reading, by)

    def _differing(self, steers: bool) -> Iterator[Piece]:
        if len(self._wholes) < 2:
            return
        for piece, counters in self._readings.items():
            silent = self._tellers[piece] < len(self._told)
            if all(len(counter) + silent > 1 for counter in counters) and _steers(piece) is steers:
                yield piece

    def _said(self, text: Callable[[dict[Piece, str]], str | None]) -> dict[str | None, list[int]]:
        by_value: dict[str | None, list[int]] = {}
        for teller, pieces in self._told.values():
            by_value.setdefault(text(pieces), []).append(teller.number)
        return by_value


def _steers(piece: Piece) -> bool:
    return isinstance(piece, int) or bool(_STEERS.fullmatch(piece))


def _variable(name: str) -> Callable[[dict[Piece, str]], str | None]:
    return lambda pieces: pieces.get(name)


def _take(counter: Counter[T], value: T, by: int) -> None:
    counter[value] += by
    if not counter[value]:
        del counter[value]


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # cut in a quoted word
        return text.split(" ")


def _at(pieces: Mapping[Piece, str], places: Sequence[int]) -> str | None:
    """The words at these places, each with the option before it."""
    words = []
    for place in places:
        option = pieces.get(place - 1, "")
        if place in pieces and option.startswith("-") and "=" not in option and place - 1 not in places:
            words.append(option)
        words += [pieces[place]] if place in pieces else []
    return short(shlex.join(words)) if words else None


def secret(reader: Reader) -> str:
    """Return the source of the key; the key itself is in no plan."""
    if reader.is_set(settings.SECRET):
        reader.record(settings.SECRET)
        return reader.source(settings.SECRET)
    if reader.is_set(settings.SECRET_FILE):
        return reader.absolute(reader.get(settings.SECRET_FILE))
    if reader.is_set(settings.JOB_UID):
        if re.search(UNGUESSABLE, reader.get(settings.JOB_UID)):
            return reader.source(settings.JOB_UID)
        reader.warn(f"{reader.source(settings.JOB_UID)}: it holds neither a UUID nor a private key, so it is no key for the muster")
    reader.note(settings.SECRET, "derived from the job's name", "default")
    return ""
