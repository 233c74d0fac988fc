"""The job's outcome, as a value: the culprit, the victims, and the reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ranklaunch.fields import as_dict, from_dict

SCHEMA = "ranklaunch.verdict/1"
MOST_RULES = 8  # of a verdict
# Kinds of notes: a rank that failed during the stop; one that had failed, and had not ended by
# then; all ranks of a node failed.
LATE, WAITING, WHOLE = "late", "waiting", "whole"
NO, YES, ELSEWHERE = "no", "yes", "elsewhere"  # an error's retry
CAUSE, CONSEQUENCE, STOPPED, UNKNOWN = "cause", "consequence", "stopped", "unknown"  # an error's kind
KILLED = "process-killed"  # as a shell says of its program
# Consequences of what became of a process that the rank itself had started.
OF_ITS_OWN = (KILLED, "python-process-pool-broken", "launcher-command-failed")


@dataclass(frozen=True)
class KnownError:
    """Explanation of a process's line by the catalogue of known errors. kind: "cause", "consequence" of
    another rank's failure, "stopped": somebody signalled the process, or "unknown": no entry of its own
    knows the line. source: place of the proof. retry: may the same job go well at a new start: "no",
    "yes", "elsewhere" (on other hosts), "" if unknown."""

    name: str
    kind: str
    line: str
    meaning: str
    remedy: str
    source: str
    retry: str = ""


@dataclass(frozen=True)
class Culprit:
    """Process with a failure that decided, or could have. exit_code: 128+N after a kill by signal N. rank: None for a
    launcher, a preparing step or ranklaunch itself. time: of its end, UTC by node 0's clock."""

    node: int
    rank: int | None
    pid: int | None
    exit_code: int
    signal: str | None
    out_of_memory: bool
    last_lines: tuple[str, ...]
    name: str = ""
    host: str = ""
    time: str = ""
    error: KnownError | None = None


@dataclass(frozen=True)
class Victim:
    """A process that ranklaunch ended because of the culprit. signal: the last one it was sent."""

    node: int
    rank: int | None
    signal: str | None
    name: str = ""


@dataclass(frozen=True)
class Of:
    """What a rule looked at. rank: None for a process that is no rank. file, line: in the user's
    code; "" and 0 where nobody knows."""

    node: int
    rank: int | None
    file: str = ""
    line: int = 0


@dataclass(frozen=True)
class Because:
    """rule: its name. says: what the rule saw, in one line."""

    rule: str
    says: str
    of: Of


@dataclass(frozen=True)
class Note:
    """A note for a verdict. kind: LATE, WAITING, WHOLE, or "". rank: of the first two kinds. more:
    further ranks of the kind that have no note."""

    text: str
    kind: str = ""
    rank: int | None = None
    more: int = 0


@dataclass(frozen=True)
class Failure:
    """Report in a launcher's own output about the first failed rank.

    exit_code: 128+N after a kill by signal N. node: None for the node of this launcher. victims: (rank,
    signal) of the ranks ended by the launcher. at: monotonic seconds of the rank's end, None if
    unknown. name: of a process that is neither a rank nor the launcher. host: the launcher's name for
    the node, if the output does not give the node's index in the job.
    """

    rank: int | None
    exit_code: int
    signal: int = 0
    pid: int | None = None
    node: int | None = None
    victims: tuple[tuple[int, int], ...] = ()
    at: float | None = None
    name: str = ""
    host: str = ""


@dataclass(frozen=True)
class Suspect:
    """A possible failure of the job. at: seconds since 1970 by node 0's clock. reason: text for people, ""
    for a sentence about the culprit. late: the process was signalled before its end, and may have
    caught the exception in its output. because: rules with an explanation by records; () if rules of
    verdict.blame explain the end."""

    node: int
    at: float
    outcome: str
    exit_code: int
    reason: str = ""
    culprit: Culprit | None = None
    late: bool = False
    because: tuple[Because, ...] = ()

    @property
    def is_consequence(self) -> bool:
        culprit = self.culprit
        return bool(culprit and culprit.error and not tells_why(culprit.error) and not culprit.out_of_memory)


@dataclass(frozen=True)
class Finish:
    """A rank (None: all of a node's) that ended with 0 by itself. at: as in Suspect."""

    node: int
    rank: int | None
    at: float


@dataclass(frozen=True)
class Judgement:
    """How a job ended and why: the same in the verdicts of all nodes.

    outcome: succeeded, failed or stopped. failures: other processes that ended by themselves and
    did not decide. notes: texts worth knowing. because: rules that decided, in their order.
    """

    outcome: str
    exit_code: int
    reason: str
    culprit: Culprit | None = None
    failures: tuple[Culprit, ...] = ()
    notes: tuple[str, ...] = ()
    because: tuple[Because, ...] = ()


@dataclass(frozen=True)
class Ending:
    """The deciding event on a node; nothing later changes the decision.

    judgement: of the node then. Its reason is "" if the end of a process gives the reason, and its
    culprit None if a process of this node decided. Its rules named suspects of a hang. at: monotonic
    seconds; in ends.json seconds since 1970 by node 0's clock. pid: of the child with the deciding end.
    killed: ranklaunch itself was killed. hung: the job hung. from_elsewhere: another node decided.
    """

    judgement: Judgement
    at: float = 0.0
    pid: int | None = None
    killed: bool = False
    hung: bool = False
    from_elsewhere: bool = False

    @property
    def outcome(self) -> str:
        return self.judgement.outcome

    @property
    def exit_code(self) -> int:
        return self.judgement.exit_code

    def as_json(self) -> dict[str, Any]:
        """Return the entry of ends.json."""
        judgement = as_dict(self.judgement)
        return {
            **{name: judgement[name] for name in ("outcome", "exit_code", "reason")},
            "at": self.at,
            "pid": self.pid,
            "culprit": judgement["culprit"],
            "killed": self.killed,
            "hung": self.hung,
            "from_elsewhere": self.from_elsewhere,
            "because": judgement["because"],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Ending:
        """Read an entry of ends.json. Raises ValueError."""
        own = {name: data[name] for name in ("at", "pid", "killed", "hung", "from_elsewhere") if name in data}
        return cls(from_dict(Judgement, data), **own)


@dataclass(frozen=True)
class Verdict:
    """How an attempt ended, as one node's verdict.json has it. judgement: the same on every node.
    started, ended: UTC, ISO 8601. more: keys that plugins of the attempt add. victims, started,
    ended and more are this node's."""

    judgement: Judgement
    victims: tuple[Victim, ...]
    started: str
    ended: str
    more: Mapping[str, Any] = field(default_factory=dict)


def tells_why(error: KnownError) -> bool:
    """True if an error is the reason itself, not the mark of another rank's failure."""
    return error.kind != CONSEQUENCE or error.name in OF_ITS_OWN


def as_json(verdict: Verdict) -> dict[str, Any]:
    """Contract-bound JSON (schema ranklaunch.verdict/1): keys are only ever added."""
    judgement = as_dict(verdict.judgement)
    first = {name: judgement.pop(name) for name in ("outcome", "exit_code", "reason", "culprit")}
    of_node = as_dict(verdict)
    more, _ = of_node.pop("more"), of_node.pop("judgement")
    return {"schema": SCHEMA, **first, **of_node, **judgement, **more}
