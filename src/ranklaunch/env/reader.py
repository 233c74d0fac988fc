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
_COUNTS = ("nodes", "hosts")  # values that give the number of nodes
_BY_DEFAULT = "for 1 nodes"  # part of a problem's text if the number of nodes fell back to its default
DEFAULT = "default"  # source of a value that nothing sets


def show(value: object) -> str:
    """Return a value as the text of a variable."""
    if isinstance(value, (tuple, list)):
        return ",".join(str(item) for item in value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Candidate:
    """Text that is offered for a value. source: "option --x", a variable's name, a file's path or "default"."""

    source: str
    value: str

    @property
    def on_command_line(self) -> bool:
        return self.source.startswith("option ")

    @property
    def by_user(self) -> bool:
        """True for an option or a RANKLAUNCH_ variable, False for the platform's sources."""
        return self.source.startswith(("option ", "RANKLAUNCH_"))

    @property
    def is_derived(self) -> bool:
        """True if the source is in words: the value follows from other variables."""
        return " " in self.source and not self.on_command_line

    @property
    def quoted(self) -> str:
        """Source and value for messages, without secrets: "VC_TASK_INDEX='3'"."""
        return f"{self.source}={shown(self.source, self.value)!r}"


@dataclass(frozen=True)
class Reading:
    """Origin of one value: the effective text, its source, and the overridden texts. Secrets are hidden, long texts clipped."""

    name: str
    value: str
    source: str
    overrides: tuple[Candidate, ...] = ()


@functools.lru_cache(maxsize=1024)  # the plans of a job's nodes have most readings in common
def _reading(name: str, value: str, source: str, overrides: tuple[Candidate, ...]) -> Reading:
    return Reading(name, value, source, overrides)


class Ledger:
    """Readings of one plan, in the order in which their names first came up. The last reading of a name counts."""

    def __init__(self) -> None:
        self._readings: dict[str, Reading] = {}

    def note(self, name: str, value: str, source: str, overrides: Iterable[Candidate] = ()) -> None:
        """Record a value. source: a Candidate's, or words for a value that follows from several variables or from none."""
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

    value: name in plans. names: environment variables, highest precedence first. option: command line option, before all variables. parse:
    from text to value, as the functions of ranklaunch.env.parse; raises ValueError with the expected form. agree: all set variables must
    have the same value, except RANKLAUNCH_ ones, which override the platform's. per_node: differs from node to node of one job.
    ends_with_index: differs only in the node's index at the end. is_switch: the option takes no value, and means true. may_take: name in
    the help of an optional number after a switch.
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
        """Return this variable with a platform's own names behind RANKLAUNCH_'s."""
        return replace(self, names=(*self.names, *names), set_by=set_by, agree=agree)

    @property
    def name(self) -> str:
        """First environment variable, for messages; the value's name if only files or modules offer the value."""
        return self.names[0] if self.names else self.value

    @property
    def both(self) -> str:
        """Option and variable, for messages: "--slots (RANKLAUNCH_SLOTS)"."""
        return f"{self.option} ({self.name})" if self.option else self.name

    def setter(self, name: str) -> str:
        return "user" if name.startswith("RANKLAUNCH_") else self.set_by

    @property
    def shown_default(self) -> str:
        return self.default_text or show(self.default)


def platform_text(value: str, names: tuple[str, ...], meaning: str, **more: Any) -> Variable[str]:
    """Return the variable of a text that a platform sets, "" by default. more: further fields of Variable."""
    return Variable(value, names, parse.text, "", meaning, "platform", **more)


def platform_count(value: str, names: tuple[str, ...], meaning: str, **more: Any) -> Variable[int]:
    """Return the variable of a number from 0 that a platform sets, 0 by default. more: further fields of Variable."""
    return Variable(value, names, parse.count, 0, meaning, "platform", **more)


@dataclass(frozen=True)
class Account:
    """User account that processes run as. shell: the login shell, which sshd gives to sessions; "" if unknown."""

    name: str
    home: str
    root: bool
    shell: str = ""


ROOT_ACCOUNT = Account("root", "/root", True)


@dataclass(frozen=True)
class Arrived:
    """Facts from the start of the job, for a second plan with them.

    addresses: IPv4 addresses by host. shared: offers of nodes, by node and name. missed: paths of optional files that did not appear on
    this node in time. named: output of the command for the hosts' names; None if the command was not run. restart: number of restarts in
    place. run_id: the job's id, as node 0 has handed it over.
    """

    addresses: Mapping[str, str] = field(default_factory=dict)
    shared: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    missed: tuple[str, ...] = ()
    named: str | None = None
    restart: int = 0
    run_id: str = ""


class Reader:
    """Typed access to one environment. Adapters report wrong values here; check() raises all of them at once.

    ledger: sources of all values read so far. elsewhere: variables that are left out because their values are another node's, by name, with
    that node.
    """

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
        self.awaits_hosts = False  # True if the hosts come from a command that has not run yet
        self.noted: list[str] = []  # warnings for the verdict
        self._problems = Problems()
        self._malformed: set[str] = set()  # names of variables and options
        self._offered: dict[str, tuple[Candidate, ...]] = {}
        self._settled: dict[str, Candidate] = {}

    def get(self, variable: Variable[T]) -> T:
        """Return the value, or its default. A malformed text is recorded as a problem, and the default takes its place."""
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
            meaning = f"{variable.meaning}; set by the {_setter(variable, first)}"
            self._problems.add(f"{first.quoted}: {error} ({meaning})", first.on_command_line)
            self._malformed.update(filter(None, (first.source, variable.name, variable.option)))
            self._malformed.update([_BY_DEFAULT] if variable.value in _COUNTS else [])
            return variable.default

    def peek(self, variable: Variable[T]) -> T:
        """Return the value, noted in the plan; the default, without a note, if nothing sets the value."""
        return self.get(variable) if self.is_set(variable) else variable.default

    def record(self, variable: Variable[T]) -> None:
        """Note the source of a value that the plan itself does not need. A malformed text is recorded as a problem all the same."""
        self.get(variable)

    def note(self, variable: Variable[T], value: str, source: str, overrides: Iterable[Candidate] = ()) -> None:
        """Record the job's value and its source: a Candidate's, or words if the value follows from several or none."""
        self.ledger.note(variable.value, value, source, overrides)

    def absolute(self, path: str) -> str:
        """Return the absolute path; a relative path counts from the folder in which ranklaunch was started."""
        return absolute(path, self.cwd)

    def text(self, path: str) -> str:
        """Return the text of a file; "" for a file that cannot be read, is too large, or is not text."""
        return text_of(self.files, path)

    def is_set(self, variable: Variable[T]) -> bool:
        return bool(self.candidates(variable))

    def candidates(self, variable: Variable[T]) -> list[Candidate]:
        """Return every non-empty text offered for a variable, highest precedence first. An empty variable counts as unset."""
        option = self.options.get(variable.value)
        if variable.value in self._settled:
            return [self._settled[variable.value], *self._offered.get(variable.value, ())]
        first = [Candidate(f"option {variable.option}", option)] if option else []
        of_env = [Candidate(name, self.env[name]) for name in variable.names if self.env.get(name, "").strip()]
        return [*first, *of_env, *self._offered.get(variable.value, ())]

    def seen(self, variable: Variable[T]) -> str:
        """Return the text that get() would parse, "" without one. Nothing is parsed, noted or refused: for detect()."""
        return next((candidate.value.strip() for candidate in self.candidates(variable)), "")

    def by_user(self, variable: Variable[T]) -> bool:
        """Return True if an option or a RANKLAUNCH_ variable gives the value, False if the platform does."""
        return any(candidate.by_user for candidate in self.candidates(variable)[:1])

    def offer(self, variable: Variable[T], source: str, value: object) -> None:
        """Add one more source of a value. Precedence: behind the variables, before the sources offered earlier."""
        self._offered[variable.value] = (Candidate(source, show(value)), *self._offered.get(variable.value, ()))

    def settle(self, value: str, candidate: Candidate) -> None:
        """Replace a user's text that leaves the value to ranklaunch (auto)."""
        self._settled[value] = candidate

    def leave_aside(self, *beginnings: str) -> None:
        """Treat variables whose names begin with one of these as unset from now on."""
        self.env = {name: value for name, value in self.env.items() if not name.startswith(beginnings)}

    def address_of(self, host: str) -> str:
        """Return the IPv4 address of a host if known (after run's wait for the name), else the host itself."""
        return self.arrived.addresses.get(host, host)

    def shared(self, node: int, name: str) -> str:
        """Return an offer of a node by its name; "" until the offer has arrived here."""
        return self.arrived.shared.get(node, {}).get(name, "")

    @functools.cached_property
    def per_node(self) -> frozenset[str]:
        """Names of variables whose values belong to one node."""
        return self._per_node()

    @property
    def warnings(self) -> list[str]:
        return self._problems.warnings

    @property
    def has_problems(self) -> bool:
        """True if a problem is recorded already. A value may then be missing because of this problem."""
        return self._problems.found

    def problem(self, text: str, on_command_line: bool = False) -> None:
        """Record a problem. A text that names a malformed variable is dropped: it is about the default in the variable's place."""
        if not any(re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text) for name in self._malformed):
            self._problems.add(text, on_command_line)

    def warn(self, text: str, in_verdict: bool = False) -> None:
        """Record a warning. in_verdict: verdict.json repeats the warning among its notes."""
        self._problems.warn(text)
        if in_verdict:
            self.noted.append(text)

    def check(self) -> None:
        """Raise one error with all problems recorded so far."""
        self._problems.check()

    def source(self, variable: Variable[T]) -> str:
        """Return the source of a value for messages: an option, a variable, or the first variable that could give the value."""
        reading = self.ledger.reading(variable.value)
        return reading.source if reading and reading.source != DEFAULT else variable.name

    def described(self, variable: Variable[T]) -> str:
        """Return source and value for messages: "option --node=3", "VC_TASK_INDEX=3", or the first variable that could give the value."""
        reading = self.ledger.reading(variable.value)
        return f"{self.source(variable)}={reading.value}" if reading else variable.name

    def quoted(self, variable: Variable[T]) -> str:
        """Return source and value for messages, the value in quotes: "VC_TASK_INDEX='3'"."""
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


def _setter(variable: Variable[T], candidate: Candidate) -> str:
    return "command line" if candidate.on_command_line else variable.setter(candidate.source)


def _same(parse: Callable[[str], T], one: str, other: str) -> bool:
    try:
        return bool(parse(one) == parse(other))
    except ValueError:
        return True  # the malformed text has a problem of its own
