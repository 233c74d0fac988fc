"""Values of a verdict: outcome, reason, culprit, victims, and known errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ranklaunch.fields import as_dict, from_dict

SCHEMA = "ranklaunch.verdict/1"
MOST_RULES = 8  # in `because` of a verdict
# Kinds of notes: a rank failed during the stop; a rank had failed before the stop but not exited;
# all ranks of a node failed.
LATE, WAITING, WHOLE = "late", "waiting", "whole"
NO, YES, ELSEWHERE = "no", "yes", "elsewhere"  # values of KnownError.retry
CAUSE, CONSEQUENCE, STOPPED, UNKNOWN = "cause", "consequence", "stopped", "unknown"  # values of KnownError.kind
KILLED = "process-killed"  # known error: a shell reports that its program was killed
# Consequences of the end of a process that the rank itself had started.
OF_ITS_OWN = (KILLED, "python-process-pool-broken", "launcher-command-failed")


@dataclass(frozen=True)
class KnownError:
    """Explanation of an output line by the catalogue of known errors. kind: "cause", "consequence" of
    another rank's failure, "stopped" (somebody signalled the process), or "unknown" (no entry of its
    own matches the line). source: place of the proof. retry: chance of the same job at a new start:
    "no", "yes", "elsewhere" (on other hosts), "" if unknown."""

    name: str
    kind: str
    line: str
    meaning: str
    remedy: str
    source: str
    retry: str = ""


@dataclass(frozen=True)
class Culprit:
    """Process with a failure that decided the job, or could have decided it. exit_code: 128+N after a kill by signal N.
    rank: None for a launcher, a preparing step or ranklaunch itself. time: of its end, UTC by node 0's clock."""

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
    """Process that ranklaunch ended because of the culprit. signal: the last signal sent to it."""

    node: int
    rank: int | None
    signal: str | None
    name: str = ""


@dataclass(frozen=True)
class Of:
    """Subject of a rule. rank: None for a process that is no rank. file, line: in the user's code;
    "" and 0 if unknown."""

    node: int
    rank: int | None
    file: str = ""
    line: int = 0


@dataclass(frozen=True)
class Because:
    """Rule that decided. rule: its name. says: the evidence that it found, in one line."""

    rule: str
    says: str
    of: Of


@dataclass(frozen=True)
class Note:
    """Note for a verdict. kind: LATE, WAITING, WHOLE, or "". rank: for LATE and WAITING. more: number
    of further ranks that this note stands for."""

    text: str
    kind: str = ""
    rank: int | None = None
    more: int = 0


@dataclass(frozen=True)
class Failure:
    """Report in a launcher's own output about the first failed rank.

    exit_code: 128+N after a kill by signal N. node: None for the node of this launcher. victims: (rank,
    signal) of the ranks that the launcher ended. at: monotonic seconds of the rank's end, None if
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
    """Possible failure of the job. at: seconds since 1970 by node 0's clock. reason: text for people, ""
    for the usual sentence about the culprit. late: the process was signalled before its end, and may
    have caught the exception in its output. because: rules that explain the end by records; () if
    rules of verdict.blame explain it."""

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
    """Rank that ended with 0 by itself. rank: None for all ranks of the node. at: as in Suspect."""

    node: int
    rank: int | None
    at: float


@dataclass(frozen=True)
class Judgement:
    """End of a job and its cause: the same in the verdicts of all nodes.

    outcome: succeeded, failed or stopped. failures: processes that failed by themselves but did not
    decide. notes: further facts, for people. because: rules that decided, in their order.
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
    """Deciding event on a node; nothing later changes the decision.

    judgement: of the node at this moment. The reason is "" if the end of a process gives the reason.
    The culprit is None if a process of this node decided. The rules are those that named suspects of
    a hang. at: monotonic seconds; in ends.json seconds since 1970 by node 0's clock. pid: of the child
    with the deciding end. killed: ranklaunch itself was killed. hung: the job hung. from_elsewhere:
    another node decided.
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
        fields = {name: data[name] for name in ("at", "pid", "killed", "hung", "from_elsewhere") if name in data}
        return cls(from_dict(Judgement, data), **fields)


@dataclass(frozen=True)
class Verdict:
    """End of an attempt, as in one node's verdict.json. judgement: the same on every node; all other
    fields are this node's. started, ended: UTC, ISO 8601. more: keys that plugins of the attempt
    add."""

    judgement: Judgement
    victims: tuple[Victim, ...]
    started: str
    ended: str
    more: Mapping[str, Any] = field(default_factory=dict)


def tells_why(error: KnownError) -> bool:
    """True if an error explains the end of its own rank; False for a sign of another rank's failure."""
    return error.kind != CONSEQUENCE or error.name in OF_ITS_OWN


def as_json(verdict: Verdict) -> dict[str, Any]:
    """Return the content of verdict.json (schema ranklaunch.verdict/1). Keys are only ever added."""
    judgement = as_dict(verdict.judgement)
    first = {name: judgement.pop(name) for name in ("outcome", "exit_code", "reason", "culprit")}
    of_node = as_dict(verdict)
    more, _ = of_node.pop("more"), of_node.pop("judgement")
    return {"schema": SCHEMA, **first, **of_node, **judgement, **more}
