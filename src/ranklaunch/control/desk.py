"""Where a running job is asked how it stands, and told to save; opened once it has lasted a second.

Whoever is asked answers for the whole job: the question goes round, and what other nodes do not say in time is what they said before, with
its age.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ranklaunch.control import rank_states
from ranklaunch.control.all_nodes import Circle, Judge
from ranklaunch.control.save import Offer, Saving
from ranklaunch.control.server import Answer, Counter
from ranklaunch.control.stacks import Stacked
from ranklaunch.muster.wire import WireError, text
from ranklaunch.plan.model import Plan, Save
from ranklaunch.supervise.plugins import Attended
from ranklaunch.supervise.record import now as time_now
from ranklaunch.system.loop import Loop
from ranklaunch.verdict import folders

if TYPE_CHECKING:
    from ranklaunch.control.rank_records import Recorded

SCHEMA = "ranklaunch.status/1"
MOST_S = 10_000_000  # to a deadline
MARGIN_S = 2.0  # between the end of the grace and a deadline; half of a deadline that is nearer than twice that
SAVES_SHARE = 0.5  # of what is left until then, for ranks that were asked to save: those that do not catch SIGTERM would die of the stop
ANSWERS_S = 1.0  # before a stop, for whoever has asked for it to hear of all nodes
WARNINGS = ("SIGUSR1", "SIGUSR2")
DO = "do"
MOST_SETTING = 40  # characters of a setting's name


@dataclass(frozen=True)
class Asked:
    """A session, as its desk sees it. attended: the attempt that runs. phase: what it does, and what it waits for, "" for nothing.
    of_ranks: what else is known of ranks, by rank and key; present: of the job, by key. offer: as in Saving. stop: the job, as by SIGTERM.
    end_by: at that time, by the loop's clock, no stop of this node may last any longer; and how its ranks were asked to save before."""

    attended: Callable[[], Attended]
    phase: Callable[[], tuple[str, str]]
    of_ranks: Callable[[], Mapping[int, Mapping[str, Any]]]
    offer: Offer
    stop: Callable[[], None]
    end_by: Callable[[float, Sequence[str]], None]
    present: Callable[[], Mapping[str, Any]] = dict


class Desk:
    """loop: the session's. Raises OSError where there is no way to be asked."""

    def __init__(self, asked: Asked, loop: Loop) -> None:
        self._asked = asked
        seen = asked.attended()
        self._loop = loop
        job = seen.plan().job
        self._saving = Saving(lambda: self._save, asked.offer, lambda: asked.attended().record, loop.clock)
        self._known: dict[int, tuple[float, Mapping[str, Any]]] = {}  # how each node stood last, and when it said so
        self._circle = Circle(seen.nodes, job.node_index, len(job.everyone), self._loop, self._do)
        self._recorded: Recorded | None = None  # of the attempt that runs
        self._stacked = Stacked(seen.nodes, job.node_index, asked.attended)
        self._handlers: dict[str, Callable[[Mapping[str, Any], Answer], None]] = {
            "status": self._status, "save": self._on_save, "stacks": self._on_stacks,
        }  # fmt: skip
        self._counter = Counter(seen.record.folder, folders.socket(job.node_index), self._loop, self._handle)

    @property
    def path(self) -> str:
        """Of its socket, where that is not in the attempt's folder; else ""."""
        return self._counter.path if self._counter.elsewhere else ""

    def close(self) -> None:
        self._counter.close()

    def is_warning(self, name: str) -> bool:
        """Whether a signal that this node was sent is a request to save, for all."""
        return name in WARNINGS and self._save.wanted

    def warn(self) -> None:
        """A platform has warned this node."""
        self._ask({DO: "save"}, lambda answers: None)

    @property
    def _save(self) -> Save:
        return self._plan.save

    @property
    def _plan(self) -> Plan:
        return self._asked.attended().plan()

    def _handle(self, question: Mapping[str, Any], answer: Answer) -> None:
        wanted = question.get(DO)
        handler = self._handlers.get(wanted) if isinstance(wanted, str) else None
        if handler:
            handler(question, answer)
        else:
            answer({"error": f"this ranklaunch answers {', '.join(self._handlers)}"})

    def _ask(self, question: Mapping[str, Any], told: Callable[[Mapping[int, Mapping[str, Any]]], None], judge: Judge = len) -> None:
        try:
            self._circle.ask(question, told, judge)
        except (WireError, ValueError, TypeError):  # no message holds it
            told({})

    def _do(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        """What any node asks of this one."""
        if question.get(DO) == "status":
            return self._stands()
        return self._to_save(question) if question.get(DO) == "save" else {}

    # How it stands

    def _status(self, question: Mapping[str, Any], answer: Answer) -> None:
        self._ask({DO: "status"}, lambda answers: answer(self._compiled(answers)), _judge_standing)

    def _stands(self) -> dict[str, Any]:
        phase, waiting = self._asked.phase()
        seen = self._asked.attended()
        plan = seen.plan()
        known, more, recorded = seen.ranks(), self._asked.of_ranks(), self._records(seen)
        own = () if plan.job.is_idle else plan.job.node.ranks
        said = recorded.of_ranks(own, known) if recorded else {}
        more = {rank: {**more.get(rank, {}), **said.get(rank, {})} for rank in (*more, *said)}
        ranks = rank_states.ranks(plan, known, seen.outputs(), more, self._loop.clock())
        if phase == "done":  # all of them have ended with 0
            ranks = [{**each, "state": rank_states.STATES["Z"]} if each.get("state") == "unknown" else each for each in ranks]
        launchers = recorded.launchers() if recorded else []
        return {
            "host": plan.job.node.host,
            "phase": phase,
            "waiting": waiting,
            "launchers": launchers,
            "ranks": ranks,
            **self._asked.present(),
        }

    def _records(self, seen: Attended) -> Recorded | None:
        """None where no descriptor is left to import it."""
        try:
            from ranklaunch.control.rank_records import Recorded  # few jobs are asked
        except (OSError, ImportError):
            return None
        folder = folders.records(seen.record.folder, seen.plan().job.node_index)
        if self._recorded is None or self._recorded.folder != folder:
            self._recorded = Recorded(folder)
        self._recorded.look()
        return self._recorded

    def _compiled(self, answers: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
        """schema ranklaunch.status/1; age_s: seconds since a node has said so, null where it never has."""
        plan, now = self._plan, self._loop.clock()
        here = plan.job.node_index
        self._known.update({node: (now, each) for node, each in answers.items()})
        said = {**self._known, here: (now, self._stands())}
        nodes = [
            {"node": i, "host": each.host, **_of_node(*said[i], now)} if i in said else {"node": i, "host": each.host, **_UNHEARD}
            for i, each in enumerate(plan.job.everyone)
        ]
        ranks = _whole(_aged(rank, now - at) for at, each in (said[i] for i in sorted(said)) for rank in each["ranks"])
        job = {"job": plan.job.name, "platform": plan.job.platform, "method": plan.method, "attempt": plan.job.attempt}
        launchers = [{"node": i, **launcher} for i in sorted(said) for launcher in map(dict, said[i][1].get("launchers", ()))]
        watch = {"silence": _silence(*said[0], now) if 0 in said else None, "hang": said[here][1].get("hang")}
        head = {"schema": SCHEMA, **job, "time": time_now(), "node": here, "nodes": nodes, **watch}
        return {**head, "launchers": launchers, "ranks": ranks}

    def _on_stacks(self, question: Mapping[str, Any], answer: Answer) -> None:
        phase, waiting = self._asked.phase()
        if phase in ("running", "stopping"):
            self._stacked.ask(answer)
        else:
            node, waits = self._plan.job.node_index, f", waiting for {waiting}" if waiting else ""
            answer({"error": f"node {node} has no rank that runs: it is {phase}{waits}", "passes": True})

    # Saving

    def _on_save(self, question: Mapping[str, Any], answer: Answer) -> None:
        deadline = question.get("deadline_s")
        if not _is_deadline(deadline):
            answer({"error": f"deadline_s {deadline!r}: expected seconds"})
        elif deadline is None and not self._save.wanted:
            answer({"error": "no way is known to ask this trainer to save: RANKLAUNCH_SAVE_SIGNAL or RANKLAUNCH_SAVE_FILE says it"})
        else:
            self._ask({DO: "save", "deadline_s": deadline}, lambda answers: answer(self._asked_to_save(answers)))

    def _asked_to_save(self, answers: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
        """silent: nodes that have not answered in time."""
        silent = [node.index for node in self._plan.job.everyone if node.index not in answers]
        return {"nodes": [{"node": i, **each, "ranks": None} for i, each in sorted(answers.items())], "silent": silent}

    def _to_save(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        plan, deadline = self._plan, question.get("deadline_s")
        if not _is_deadline(deadline):
            msg = f"deadline_s {deadline!r:.80}"
            raise ValueError(msg)
        asked = dict(self._saving.ask()) if plan.save.wanted else {}
        if deadline is not None:
            left = max(float(deadline) - MARGIN_S, float(deadline) / 2)
            self._asked.end_by(self._loop.clock() + left, self._saving.ways)
            stop_in_s = max(left - plan.limits.grace_s, left * SAVES_SHARE if self._saving.ways else min(ANSWERS_S, left / 2))
            if plan.job.node_index == 0:  # which tells the others
                self._loop.after(stop_in_s, self._asked.stop)
                asked["stop_in_s"] = round(stop_in_s, 1)
        return asked


_UNHEARD = {"phase": "unknown", "waiting": "", "age_s": None}


def _is_deadline(value: object) -> bool:
    return value is None or (isinstance(value, (int, float)) and 0 <= value <= MOST_S)


def _judge_standing(said: Mapping[str, Any]) -> None:
    for key in ("phase", "waiting"):
        text(dict(said), key)
    _silence(0.0, said, 0.0)
    for rank in said["ranks"]:
        int(dict(rank)["rank"])
    for launcher in said.get("launchers", ()):
        text(dict(launcher), "name")


def _silence(at: float, said: Mapping[str, Any], now: float) -> dict[str, Any] | None:
    """Return the silence that node 0 told of so long ago, None where nobody watches."""
    silence = said.get("silence")
    if not isinstance(silence, dict):
        return None
    seconds, limit_s = float(silence["seconds"]), float(silence["limit_s"])
    aged = round(seconds + now - at, 1) if seconds else 0.0
    return {"seconds": aged, "limit_s": limit_s, "setting": str(silence["setting"])[:MOST_SETTING]}


def _whole(ranks: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """With what another node says of the output of some, of which it says no more."""
    found = [*ranks]
    elsewhere = {rank["rank"]: rank for rank in found if "node" not in rank}
    return [{**rank, **(elsewhere.get(rank["rank"], {}) if rank.get("output_bytes") is None else {})} for rank in found if "node" in rank]


def _aged(rank: dict[str, Any], seconds: float) -> dict[str, Any]:
    """As it was said so long ago."""
    wrote = rank.get("last_output_s")
    if isinstance(wrote, (int, float)) and 0 <= wrote < MOST_S:
        return {**rank, "last_output_s": round(wrote + seconds, 1)}
    return rank


def _of_node(at: float, said: Mapping[str, Any], now: float) -> dict[str, Any]:
    return {"phase": said["phase"], "waiting": said["waiting"], "age_s": round(now - at, 1)}
