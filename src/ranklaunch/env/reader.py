"""Tables of variables, and the reader that turns an environment into typed values.

A Variable has the environment variables for one value, in their order, the value's meaning, and its setter. Reading, provenance in
plans, the reference page in docs/ and the tests all come from these tables; a variable is named nowhere else.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from ranklaunch.env import parse
from ranklaunch.errors import Problems
from ranklaunch.fields import NOTHING
from ranklaunch.files import Files, absolute, text_of
from ranklaunch.showing import shown

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
_COUNTS = ("nodes", "hosts")  # values by which nodes are counted
_BY_DEFAULT = "for 1 nodes"  # in what is said of a count that fell back to its default
DEFAULT = "default"  # source of a value that nobody gives


def show(value: object) -> str:
    """A value as a variable would have it."""
    if isinstance(value, (tuple, list)):
        return ",".join(str(item) for item in value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Candidate:
    """A text that was offered for a value: by "option --x", by a variable's name, by a file's path or by "default"."""

    source: str
    value: str

    @property
    def on_command_line(self) -> bool:
        return self.source.startswith("option ")

    @property
    def by_user(self) -> bool:
        """By an option or a variable of ranklaunch's own, rather than the platform's."""
        return self.source.startswith(("option ", "RANKLAUNCH_"))

    @property
    def is_derived(self) -> bool:
        """True if the source is in words: the value follows from other variables."""
        return " " in self.source and not self.on_command_line

    @property
    def quoted(self) -> str:
        """For messages, without secrets: "VC_TASK_INDEX='3'"."""
        return f"{self.source}={shown(self.source, self.value)!r}"


@dataclass(frozen=True)
class Reading:
    """Origin of one value: the effective text, its source, and the overridden texts. Secrets are hidden, long texts clipped."""

    name: str
    value: str
    source: str
    overrides: tuple[Candidate, ...] = ()


@functools.lru_cache(maxsize=1024)  # the plans of a job's nodes have most of them in common
def _reading(name: str, value: str, source: str, overrides: tuple[Candidate, ...]) -> Reading:
    return Reading(name, value, source, overrides)


class Ledger:
    """The readings of one plan, in the order in which their names first came up; the last of a name counts."""

    def __init__(self) -> None:
        self._readings: dict[str, Reading] = {}

    def note(self, name: str, value: str, source: str, overrides: Iterable[Candidate] = ()) -> None:
        """source: a Candidate's, or in words, for what follows from several variables or from none."""
        hidden = tuple(Candidate(each.source, shown(each.source, each.value)) for each in overrides)
        text = value if source == DEFAULT else shown(source, value)
        self._readings[name] = _reading(name, text, source, hidden)

    def reading(self, name: str) -> Reading | None:
        return self._readings.get(name)

    @property
    def readings(self) -> tuple[Reading, ...]:
        return tuple(self._readings.values())


@dataclass(frozen=True)
class Variable(Generic[T_co]):
    """One value of the job and its possible sources.

    value: its name in plans. names: environment variables, highest precedence first. option: the command line option that comes before
    all of them. parse: text to value, as the functions of ranklaunch.env.parse; raises ValueError with the expected form. agree: set
    variables must have the same value (RANKLAUNCH_ ones are exempt: they are meant to override). per_node: differs from node to node of
    one job; ends_with_index: by nothing but the node's index at its end. is_switch: its option takes no value, and means true. may_take:
    help's name for an optional number after a switch.
    """

    value: str
    names: tuple[str, ...]
    parse: Callable[[str], T_co]
    default: T_co
    meaning: str
    set_by: str = "user"
    option: str = ""
    agree: bool = False
    per_node: bool = False
    ends_with_index: bool = False
    default_text: str = ""
    is_switch: bool = False
    may_take: str = ""

    def also(self, *names: str, set_by: str = "platform", agree: bool = False) -> Variable[T_co]:
        """The same value with a platform's own variables after RANKLAUNCH_'s."""
        return replace(self, names=(*self.names, *names), set_by=set_by, agree=agree)

    @property
    def name(self) -> str:
        """Return the first environment variable, for messages; the value's name for one that only files or modules offer."""
        return self.names[0] if self.names else self.value

    @property
    def both(self) -> str:
        """How to say it, for messages: "--slots (RANKLAUNCH_SLOTS)"."""
        return f"{self.option} ({self.name})" if self.option else self.name

    def setter(self, name: str) -> str:
        return "user" if name.startswith("RANKLAUNCH_") else self.set_by

    @property
    def shown_default(self) -> str:
        return self.default_text or show(self.default)


def platform_text(value: str, names: tuple[str, ...], meaning: str, **more: Any) -> Variable[str]:
    """Return a text that a platform sets, "" by default. more: as of Variable."""
    return Variable(value, names, parse.text, "", meaning, "platform", **more)


def platform_count(value: str, names: tuple[str, ...], meaning: str, **more: Any) -> Variable[int]:
    """Return a number from 0 that a platform sets, 0 by default. more: as of Variable."""
    return Variable(value, names, parse.count, 0, meaning, "platform", **more)


@dataclass(frozen=True)
class Account:
    """Whom processes run as. shell: which sshd gives its sessions; "" where that is unknown."""

    name: str
    home: str
    root: bool
    shell: str = ""


ROOT_ACCOUNT = Account("root", "/root", True)


@dataclass(frozen=True)
class Arrived:
    """Facts from the start of the job, for a second plan with them. addresses: IPv4, by host. shared: offers of nodes, by node and name.
    missed: paths of optional files, awaited on this node in vain. named: output of the command for the names of hosts; None: the command
    was not run. restart: how many times the ranks were started again in place. run_id: of the job, as node 0 has handed it over."""

    addresses: Mapping[str, str] = field(default_factory=dict)
    shared: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    missed: tuple[str, ...] = ()
    named: str | None = None
    restart: int = 0
    run_id: str = ""


class Reader:
    """Typed access to one environment. ledger: sources of all values read so far. Adapters report wrong values here; check() raises all of
    them at once. elsewhere: variables left out because their values are another node's, by name, with that node."""

    def __init__(
        self,
        env: Mapping[str, str],
        files: Files,
        options: Mapping[str, str] | None = None,
        cwd: str = "/",
        arrived: Arrived | None = None,
        account: Account = ROOT_ACCOUNT,
        per_node: Callable[[], frozenset[str]] = frozenset,
        elsewhere: Mapping[str, str] = NOTHING,
    ) -> None:
        self.elsewhere = elsewhere
        self.arrived = arrived or Arrived()
        self.account = account
        self._per_node = per_node
        self.env = env
        self.files = files
        self.options = dict(options or {})
        self.cwd = cwd
        self.ledger = Ledger()
        self.awaits_hosts = False  # of a command that was not run
        self.noted: list[str] = []  # warnings for the verdict
        self._problems = Problems()
        self._malformed: set[str] = set()  # names of variables and options
        self._offered: dict[str, tuple[Candidate, ...]] = {}
        self._settled: dict[str, Candidate] = {}

    def get(self, variable: Variable[T]) -> T:
        """The value, or its default. A malformed text is recorded as a problem and the default stands in for it."""
        candidates = self.candidates(variable)
        if not candidates:
            self.note(variable, show(variable.default), DEFAULT)
            return variable.default
        if variable.agree:
            self._refuse_disagreement(variable, candidates)
        first = candidates[0]
        self.note(variable, first.value, first.source, candidates[1:])
        try:
            return variable.parse(first.value)
        except ValueError as error:
            meaning = f"{variable.meaning}; set by the {_who(variable, first)}"
            self._problems.add(f"{first.quoted}: {error} ({meaning})", first.on_command_line)
            self._malformed.update(filter(None, (first.source, variable.name, variable.option)))
            self._malformed.update([_BY_DEFAULT] if variable.value in _COUNTS else [])
            return variable.default

    def peek(self, variable: Variable[T]) -> T:
        """Return a value, or its default without a note in the plan."""
        return self.get(variable) if self.is_set(variable) else variable.default

    def record(self, variable: Variable[T]) -> None:
        """Puts into the ledger who says a value, where nothing here needs the value itself. A malformed text is a problem all the same."""
        self.get(variable)

    def note(self, variable: Variable[T], value: str, source: str, overrides: Iterable[Candidate] = ()) -> None:
        """Record the job's value and its source: a Candidate's, or words if the value follows from several or none."""
        self.ledger.note(variable.value, value, source, overrides)

    def absolute(self, path: str) -> str:
        """Return a path that may be relative to the folder that ranklaunch is started in."""
        return absolute(path, self.cwd)

    def text(self, path: str) -> str:
        """Return the text of a file; "" where it cannot be read, is too large, or is no text."""
        return text_of(self.files, path)

    def is_set(self, variable: Variable[T]) -> bool:
        return bool(self.candidates(variable))

    def candidates(self, variable: Variable[T]) -> list[Candidate]:
        """Every non-empty text offered for a variable, highest precedence first. An empty variable counts as unset."""
        option = self.options.get(variable.value)
        if variable.value in self._settled:
            return [self._settled[variable.value], *self._offered.get(variable.value, ())]
        first = [Candidate(f"option {variable.option}", option)] if option else []
        named = [Candidate(name, self.env[name]) for name in variable.names if self.env.get(name, "").strip()]
        return [*first, *named, *self._offered.get(variable.value, ())]

    def seen(self, variable: Variable[T]) -> str:
        """Return the text that would give a value, without reading the value: for detecting."""
        return next((candidate.value.strip() for candidate in self.candidates(variable)), "")

    def by_user(self, variable: Variable[T]) -> bool:
        """Return True if an option or a variable of ranklaunch's own gives the value, rather than the platform."""
        return any(candidate.by_user for candidate in self.candidates(variable)[:1])

    def offer(self, variable: Variable[T], source: str, value: object) -> None:
        """Add one more source of a value: before those offered earlier, behind the variables."""
        self._offered[variable.value] = (Candidate(source, show(value)), *self._offered.get(variable.value, ()))

    def settle(self, value: str, candidate: Candidate) -> None:
        """Replace a user's text that asks to find the value out (auto)."""
        self._settled[value] = candidate

    def leave_aside(self, *beginnings: str) -> None:
        """From here on, variables whose names begin so are as if nobody had set them."""
        self.env = {name: value for name, value in self.env.items() if not name.startswith(beginnings)}

    def address_of(self, host: str) -> str:
        """Return the IPv4 address of a host if it is known, as after run's wait for the name; else the host as it is written."""
        return self.arrived.addresses.get(host, host)

    def shared(self, node: int, name: str) -> str:
        """Return an offer of a node; "" as long as it is not known here."""
        return self.arrived.shared.get(node, {}).get(name, "")

    @functools.cached_property
    def per_node(self) -> frozenset[str]:
        """Names of variables that are about one node."""
        return self._per_node()

    @property
    def warnings(self) -> list[str]:
        return self._problems.warnings

    @property
    def has_problems(self) -> bool:
        """True where something is wrong already: what is missing then may be missing for that reason."""
        return self._problems.found

    def problem(self, text: str, on_command_line: bool = False) -> None:
        """Record what is wrong. A text that names a malformed variable is about the default in its place, and is left out."""
        if not any(re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text) for name in self._malformed):
            self._problems.add(text, on_command_line)

    def warn(self, text: str, in_verdict: bool = False) -> None:
        """in_verdict: verdict.json repeats the warning among its notes."""
        self._problems.warn(text)
        if in_verdict:
            self.noted.append(text)

    def check(self) -> None:
        """Raises one error with every problem found so far."""
        self._problems.check()

    def source(self, variable: Variable[T]) -> str:
        """Source of a value, for messages: an option, a variable, or the first variable that could give it."""
        reading = self.ledger.reading(variable.value)
        return reading.source if reading and reading.source != DEFAULT else variable.name

    def described(self, variable: Variable[T]) -> str:
        """Return a value as given, for messages: "option --node=3", "VC_TASK_INDEX=3", or the first variable able to give it."""
        reading = self.ledger.reading(variable.value)
        return f"{self.source(variable)}={reading.value}" if reading else variable.name

    def quoted(self, variable: Variable[T]) -> str:
        """The same with quotes about the value: "VC_TASK_INDEX='3'"."""
        reading = self.ledger.reading(variable.value)
        return f"{self.source(variable)}={reading.value!r}" if reading else variable.name

    def _refuse_disagreement(self, variable: Variable[T], candidates: list[Candidate]) -> None:
        of_platform = [c for c in candidates if not c.by_user]
        if len(of_platform) < 2 or len(of_platform) != len(candidates):
            return
        first = of_platform[0]
        for other in of_platform[1:]:
            if _same(variable.parse, first.value, other.value):
                continue
            self.problem(
                f"{first.quoted} contradicts {other.quoted} ({variable.meaning}); "
                f"unset the wrong one" + (f" or set {variable.name}" if variable.name.startswith("RANKLAUNCH_") else "")
            )


def _who(variable: Variable[T], candidate: Candidate) -> str:
    return "command line" if candidate.on_command_line else variable.setter(candidate.source)


def _same(parse: Callable[[str], T], one: str, other: str) -> bool:
    try:
        return bool(parse(one) == parse(other))
    except ValueError:
        return True  # whichever is malformed has its own error
