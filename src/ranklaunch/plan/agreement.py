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
PROGRAM = "program"  # in `allowed`: nodes may have different programs, and so different arguments
ALL = "all"  # in `allowed`: all facts may differ, except facts.FIXED
MOST_ARGUMENTS = 8192  # characters; the rest is compared by a digest
_COMMUNICATION = re.compile(r"(?:NCCL|HCCL|GLOO|TORCH)_\w+")
# Variables of these families that ranks must agree on: algorithm and transport of a collective.
_STEERS = re.compile(
    r"[A-Z]+_(?:\w+_)?(?:ALGO|PROTO|DISABLED?|ENABLED?|NET|TRANSPORT|DETERMINISTIC|BUFFSIZE|NTHREADS)|HCCL_OP_EXPANSION_MODE"
)
_RUN = re.compile(r"[\w-]{20,}")  # no known form of a token is shorter
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?")
_NUMBER = re.compile(r"(?<![0-9])(?<![0-9]\.)[0-9]+(?!\.?[0-9])")
# A random id of Kubernetes, or the private key of an MPIJob.
UNGUESSABLE = r"(?i)\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b|PRIVATE KEY-"
_ADDRESS = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}|[0-9A-Fa-f]*:[0-9A-Fa-f:.]+")

T = TypeVar("T")
Piece = Union[int, str]  # index of an argument, or name of a variable


def of_ranks(plan: Plan, env: Mapping[str, str], args: Sequence[str] | None = None) -> dict[str, str]:
    """Return the facts of this node.

    env: inherited by its processes. args: the program's arguments before templates are filled, if the plan's differ from node to node.
    Parameter servers (ps) have arguments of their own, so only workers are compared.
    """
    if not plan.processes or plan.job.node.task == "ps":
        return {}
    process = plan.processes[0]
    inherited = {name: value for name, value in env.items() if name not in process.unset}
    compared = {name: value for name, value in sorted({**inherited, **process.env}.items()) if _COMMUNICATION.fullmatch(name)}
    return {
        ARGUMENTS: _arguments(plan.job.program.args if args is None else args),
        **{name: short(value) for name, value in redact.environment(compared).items()},
    }


def _arguments(words: Sequence[str]) -> str:
    text = shlex.join(short(_without_tokens(word)) for word in redact.argv(words))
    return text if len(text) <= MOST_ARGUMENTS else f"{text[:MOST_ARGUMENTS].rpartition(' ')[0]} {digest(text)}"


def _without_tokens(word: str) -> str:
    """Return a word with tokens of known forms hidden. The patterns are loaded only for a word that may have a token."""
    may_have_token = any(any(map(str.isdigit, run)) for run in _RUN.findall(word))
    return errors.quoted((word,))[0] if may_have_token else word


def is_of_ranks(name: str) -> bool:
    """Return True for a fact that is compared here."""
    return name == ARGUMENTS or bool(_COMMUNICATION.fullmatch(name))


class Teller:
    """Node that has reported facts, with its names. address: source of its connection, "" for node 0 itself."""

    def __init__(self, index: int, names: Iterable[str], address: str) -> None:
        full_names = {name for name in names if name}
        self.number = index
        self._names = full_names | {name.partition(".")[0] for name in full_names if not _ADDRESS.fullmatch(name)}
        self._address = address.replace("::ffff:", "") if _ADDRESS.fullmatch(address) else ""

    def readings(self, text: str, may_be_index: bool) -> tuple[str, str, str]:
        """Return a text in three forms: unchanged, with the node's own name and address masked, and with its index masked too.

        The index is masked last and only if may_be_index: other numbers may be equal to it.
        """
        masked = text.replace(self._address, "<address>") if ":" in self._address else text
        if not self._address or self._address in text or any(name in text for name in self._names):
            masked = _NAME.sub(lambda match: self._masked(match[0]), masked)
        if not may_be_index or str(self.number) not in masked:
            return text, masked, masked
        return text, masked, _NUMBER.sub(lambda match: "<index>" if match[0] == str(self.number) else match[0], masked)

    def _masked(self, word: str) -> str:
        is_own_address = word == self._address or (not self._address and _ADDRESS.fullmatch(word))
        return "<address>" if is_own_address else "<host>" if word in self._names else word


class Agreement:
    """Comparison of the facts of all nodes that have reported. allowed: names of facts that may differ."""

    def __init__(self, allowed: Collection[str] = ()) -> None:
        self._allowed = allowed
        self._reports: dict[str, tuple[Teller, dict[Piece, str]]] = {}
        self._wholes: Counter[frozenset[tuple[Piece, str]]] = Counter()
        self._counted: set[str] = set()
        self._nodes_with: Counter[Piece] = Counter()
        self._readings: dict[Piece, tuple[Counter[str], ...]] = {}

    def add(self, instance: str, teller: Teller, facts: Mapping[str, str]) -> None:
        """Add a node. facts: all facts of its report."""
        if ARGUMENTS not in facts or ALL in self._allowed:
            return
        pieces = dict(self._pieces(facts))
        self._reports[instance] = (teller, pieces)
        self._wholes[frozenset(pieces.items())] += 1
        if self._counted:
            self._count(instance, 1)
        elif len(self._wholes) > 1:  # counting pieces takes time, and is not needed while all reports are equal
            for node in self._reports:
                self._count(node, 1)

    def remove(self, instance: str) -> None:
        if instance not in self._reports:
            return
        if instance in self._counted:
            self._count(instance, -1)
        _count_in(self._wholes, frozenset(self._reports.pop(instance)[1].items()), -1)

    @property
    def differ(self) -> bool:
        """Return True if nodes differ in a fact that makes the job wrong."""
        return any(True for _ in self._differing(steers=True))

    def problems(self, steers: bool = True) -> Iterator[tuple[str, dict[str | None, list[int]]]]:
        """Yield each differing fact, with the nodes of each of its values.

        steers: True for facts that make the job wrong, False for the remaining ones.
        """
        pieces = list(self._differing(steers))
        places = sorted(piece for piece in pieces if isinstance(piece, int))
        if places:
            yield ARGUMENTS, self._nodes_by_value(lambda report: _words_at(report, places))
        yield from ((name, self._nodes_by_value(_variable(name))) for name in sorted(piece for piece in pieces if isinstance(piece, str)))

    def _pieces(self, facts: Mapping[str, str]) -> Iterator[tuple[Piece, str]]:
        if not {ARGUMENTS, PROGRAM} & {*self._allowed}:
            yield from enumerate(_words(facts[ARGUMENTS]))
        yield from ((name, value) for name, value in facts.items() if _COMMUNICATION.fullmatch(name) and name not in self._allowed)

    def _count(self, instance: str, by: int) -> None:
        teller, pieces = self._reports[instance]
        (self._counted.add if by > 0 else self._counted.discard)(instance)
        for piece, text in pieces.items():
            self._nodes_with[piece] += by
            if piece not in self._readings:
                self._readings[piece] = (Counter(), Counter(), Counter())
            # In a variable that steers NCCL, 0 on node 0 and 1 on node 1 are different settings, and no index.
            for counter, reading in zip(self._readings[piece], teller.readings(text, isinstance(piece, int) or not _steers(piece))):
                _count_in(counter, reading, by)

    def _differing(self, steers: bool) -> Iterator[Piece]:
        if len(self._wholes) < 2:
            return
        for piece, counters in self._readings.items():
            is_missing = self._nodes_with[piece] < len(self._reports)
            if all(len(counter) + is_missing > 1 for counter in counters) and _steers(piece) is steers:
                yield piece

    def _nodes_by_value(self, text: Callable[[dict[Piece, str]], str | None]) -> dict[str | None, list[int]]:
        by_value: dict[str | None, list[int]] = {}
        for teller, pieces in self._reports.values():
            by_value.setdefault(text(pieces), []).append(teller.number)
        return by_value


def _steers(piece: Piece) -> bool:
    return isinstance(piece, int) or bool(_STEERS.fullmatch(piece))


def _variable(name: str) -> Callable[[dict[Piece, str]], str | None]:
    return lambda pieces: pieces.get(name)


def _count_in(counter: Counter[T], value: T, by: int) -> None:
    counter[value] += by
    if not counter[value]:
        del counter[value]


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # the text was cut within quotes
        return text.split(" ")


def _words_at(pieces: Mapping[Piece, str], places: Sequence[int]) -> str | None:
    """Return the arguments with these indexes, each with the option before it; None without any."""
    words = []
    for place in places:
        option = pieces.get(place - 1, "")
        if place in pieces and option.startswith("-") and "=" not in option and place - 1 not in places:
            words.append(option)
        words += [pieces[place]] if place in pieces else []
    return short(shlex.join(words)) if words else None


def secret(reader: Reader) -> str:
    """Return the source of the muster's key, "" for a key derived from the job's name. No plan has the key itself."""
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
