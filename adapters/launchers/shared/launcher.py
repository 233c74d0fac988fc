"""Base classes of launchers: planning of a node's ranks, where they are, what the launcher reports of them, and how they are stopped.

Each method has a class. The base has the defaults, which fit a process that is a rank itself, or that passes signals on to its ranks.
plan() and needs() are called before anything starts. From the start on there is one object for each started process: the supervisor asks
it, and calls its methods when ranks are to be stopped. docs/launchers.md tells why launchers differ from the defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ranklaunch.env.job import Job
from ranklaunch.env.reader import Reader, Variable
from ranklaunch.plan.model import Plan, Process
from ranklaunch.render.templates import Templates
from ranklaunch.verdict.model import Failure

PROOF_BEGUN = "begun"  # in the file of Launcher.proof, until an exit code is
After = Callable[[float, Callable[[], None]], object]  # calls later, after so many seconds

ONE_AFTER_THE_OTHER_S = 1.0  # for a launcher that signals its ranks one after the other to have reached those that end at once
SETTLE_S = 1.0  # for ranks that end at once: a launcher that saw it would end the others, which may be saving


@dataclass(frozen=True)
class Need:
    """A program that a plan starts. comes_with: the hint where it is missing. least: a package, and its oldest version that will do."""

    comes_with: str
    least: tuple[str, str] | None = None


PYTHON = dict.fromkeys(("python", "python3"), Need("name the interpreter with --python"))


class Started(Protocol):
    """A process that was started as a launcher."""

    def left(self) -> list[Any]:
        """Return the ranks that live, on this node."""

    def hold(self) -> None:
        """Stop the launcher by SIGSTOP, with all that stands between it and its ranks."""

    def hold_with_ranks(self) -> None:
        """Hold the launcher if it has ranks, until they have ended by themselves."""

    def serve(self) -> None:
        """Let a held launcher go on, for its ranks may need its store, unless one has failed: it would end the others."""


class Signals(Protocol):
    """Sender of signals, in a stop and after a failure."""

    def signal(self, child: Any, number: int) -> None:
        """Signal the started process itself."""

    def signal_ranks(self, child: Any, number: int) -> None:
        """Signal the ranks of a launcher, through shells and wrappers."""

    def signal_in_turn(self, child: Any, number: int) -> None:
        """Signal the ranks of a launcher that ends all once one has died: first those that catch the signal, then the others."""

    def remind(self, child: Any) -> None:
        """Send SIGTERM to a launcher itself, and once more after half of the grace."""

    def after(self, seconds: float, act: Callable[[], None]) -> object:
        """Call a function later, unless everything has ended by then."""


class Launcher:
    """NAME: of the method; METHOD.VARIANT for another class of the same method. VARIABLES: those that plan() reads beyond
    ranklaunch.env.settings. The others are facts about the program."""

    NAME = ""
    VARIABLES: tuple[Variable[Any], ...] = ()

    # Where its ranks are.
    DEPTH = 0  # generations from the process down to its ranks (1: its children); of a service: from what has come through it
    CARRIERS: tuple[str, ...] = ()  # programs through which alone its ranks come; below a service: anywhere on this node

    # What it writes, as regular expressions.
    STARTS = ""  # as it starts each rank, in their order; group pid
    # As it ends its ranks after a failure; of a service: that it is of no use. Groups: pid or living (a rank that had not failed): of a
    # rank; agent: of the launcher.
    ENDS_RANKS: tuple[str, ...] = ()
    REPORTS = ""  # the beginning of its report of the failure; it may end seconds later
    HAS_REPORTED = ""  # the end of its report: it may be killed then, once its ranks are gone

    ON_EACH_NODE = ""  # lines that it writes on each node alike: the console of node 0 alone shows them

    planned: Plan  # of which the process is

    def __init__(self, process: Process, planned: Plan | None = None) -> None:
        self.process = process
        if planned:
            self.planned = planned

    # Before the start

    @staticmethod
    def plan(job: Job, reader: Reader, templates: Templates) -> Plan:
        """Return what happens on the job's own node. Problems go to the reader, which raises them all at once afterwards."""
        raise NotImplementedError

    @staticmethod
    def needs() -> Mapping[str, Need]:
        """Return the programs that plans of this method start, by name."""
        return {}

    @staticmethod
    def starts_all(reader: Reader) -> bool:
        """Return True if node 0 starts the ranks of all nodes, with its own variables."""
        return False

    # Ranks

    @property
    def starts_ranks(self) -> bool:
        return bool(self.DEPTH or self.CARRIERS)

    @property
    def kills_ranks(self) -> bool:
        """True if it sends SIGKILL to all its ranks as soon as one has ended: ranklaunch holds it, and ends the others itself. A launcher
        that sends SIGTERM leaves them time, and keeps the default."""
        return False

    @property
    def lonely_s(self) -> float:
        """Seconds that it may go on after the last of its ranks has ended; 0: for ever."""
        return 0

    @property
    def repeats(self) -> bool:
        """True if its standard output repeats the files of its ranks: it is thrown away."""
        return False

    @property
    def proof(self) -> str:
        """Path of a file that has the exit code of what it has started to start the ranks, "" for none: its own 0 says nothing then."""
        return ""

    # What it reports

    @property
    def reporter(self) -> str:
        """Name of its report in ranklaunch.catalogue.reports, if no other launcher's report can be in its output; else ""."""
        return ""

    @staticmethod
    def report(text: str, pid: int = 0) -> Failure | None:
        """Return the rank that failed first, by the last of what the process wrote; None if its exit code says it all. pid: of the process,
        whose ranks may have started others like it; 0: unknown."""
        return None

    # Stopping

    def stop(self, signals: Signals, child: Started, number: int) -> None:
        """Pass on a stop request: the process itself gets the signal."""
        signals.signal(child, number)

    def alone(self, signals: Signals, child: Started) -> None:
        """Act during a stop when the last rank is gone. The process was signalled before, and ends."""

    def failing(self, after: After, child: Started, signal_ranks: Callable[[], None]) -> None:
        """Act when the launcher has begun to end its ranks after a failure. signal_ranks: sends SIGTERM to them."""

    def rank_failed(self, child: Started, stopping: bool) -> None:
        """Act when a rank was seen to fail."""

    def outlived(self, end_at_once: Callable[[], None]) -> None:
        """Act when a service has outlived all ranks, and has heard SIGTERM."""


class RanksFirst(Launcher):
    """A launcher that does not pass SIGTERM on well, or ignores it: its ranks get it directly, and the launcher when they are gone, to say
    how they ended. One that does not end then is killed."""

    def stop(self, signals: Signals, child: Started, number: int) -> None:
        if self.kills_ranks:
            child.hold()
        signals.signal_ranks(child, number)

    def alone(self, signals: Signals, child: Started) -> None:
        signals.remind(child)

    def failing(self, after: After, child: Started, signal_ranks: Callable[[], None]) -> None:
        after(ONE_AFTER_THE_OTHER_S, signal_ranks)


class FromNode0(RanksFirst):
    """A launcher on node 0 that starts the ranks of all nodes, and ends all when one has ended."""

    def stop(self, signals: Signals, child: Started, number: int) -> None:
        signals.signal_in_turn(child, number)

    def alone(self, signals: Signals, child: Started) -> None:
        """Do nothing: ranks on other nodes may live, and the launcher ends when these are gone too."""
