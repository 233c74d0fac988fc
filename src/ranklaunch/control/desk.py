"""Control of a running job (desk): answers questions about its state, and passes on requests to save or stop.

The control socket is opened once the job has lasted a second. The asked node answers for the whole job: it asks all nodes. If a node
does not answer in time, its last answer is repeated with its age.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from ranklaunch.control import rank_states
from ranklaunch.control.all_nodes import AllNodes, Answers
from ranklaunch.control.rank_records import Recorded
from ranklaunch.control.save import Saving
from ranklaunch.control.server import Answer, SocketServer
from ranklaunch.control.stacks import Stacked
from ranklaunch.muster.wire import WireError, text
from ranklaunch.plan.model import Plan
from ranklaunch.supervise.record import now as time_now
from ranklaunch.system.loop import Loop
from ranklaunch.verdict import folders

if TYPE_CHECKING:
    from ranklaunch.supervise.attempt import Attempt

SCHEMA = "ranklaunch.status/1"
MOST_S = 10_000_000  # to a deadline, at most
MARGIN_S = 2.0  # between the end of the grace period and the deadline; for a near deadline, half of the remaining time
SAVES_SHARE = 0.5  # share of the time before the stop for ranks that were asked to save: the stop kills ranks that do not catch SIGTERM
ANSWERS_S = 1.0  # before a stop, for the answers of all nodes
WARNINGS = ("SIGUSR1", "SIGUSR2")  # signals by which platforms warn of a stop
DO = "do"
MOST_SETTING = 40  # characters of a setting's name
_NEVER_ANSWERED = {"phase": "unknown", "waiting": "", "age_s": None}


class Asked(Protocol):
    """Session, as this module needs it."""

    def attempt(self) -> Attempt:
        """Return the attempt that runs."""

    def phase(self) -> tuple[str, str]:
        """Return the phase of this node, and what this node waits for, "" for nothing."""

    def of_ranks(self) -> Mapping[int, Mapping[str, Any]]:
        """Return further fields of ranks, by rank."""

    def present(self) -> Mapping[str, Any]:
        """Return further fields of the job."""

    def offer(self, number: int) -> tuple[bool, list[str]]:
        """Send a signal to ranks that catch it; see save.Saving."""

    def stop(self) -> None:
        """Stop the job, as by SIGTERM."""

    def end_by(self, due: float, ways: Sequence[str]) -> None:
        """Set the time, by the loop's clock, at which a stop of this node must be over. ways: see Saving.ways; () without a request to
        save."""


class Desk:
    """Control of a running job on one node. loop: the session's. Raises OSError if no socket can be opened."""

    def __init__(self, asked: Asked, loop: Loop) -> None:
        self._asked = asked
        attempt = asked.attempt()
        self._loop = loop
        job = attempt.plan.job
        self._saving = Saving(asked.offer, loop)
        self._last_answers: dict[int, tuple[float, Mapping[str, Any]]] = {}  # by node: time and answer
        self._all_nodes = AllNodes(attempt.nodes, job.node_index, len(job.everyone), self._loop, self._do)
        self._recorded: Recorded | None = None  # of the attempt that runs
        self._stacked = Stacked(attempt.nodes, job.node_index, asked.attempt)
        self._handlers: dict[object, Callable[[Mapping[str, Any], Answer], None]] = {
            "status": self._status, "save": self._on_save, "stacks": self._on_stacks,
        }  # fmt: skip
        self._server = SocketServer(attempt.record.folder, folders.socket(job.node_index), self._loop, self._handle)

    @property
    def path(self) -> str:
        """Return the path of the socket if it is not in the attempt's folder; else ""."""
        return self._server.path if self._server.elsewhere else ""

    def close(self) -> None:
        self._server.close()

    def is_warning(self, name: str) -> bool:
        """Return True if a signal to this node is the platform's warning of a stop, at which all nodes save."""
        return name in WARNINGS and self._plan.save.wanted

    def warn(self) -> None:
        """Ask the ranks of all nodes to save: the platform has warned this node."""
        self._ask({DO: "save"}, len)

    @property
    def _plan(self) -> Plan:
        return self._asked.attempt().plan

    def _handle(self, question: Mapping[str, Any], answer: Answer) -> None:
        wanted = question.get(DO)
        handler = self._handlers.get(wanted) if isinstance(wanted, str) else None
        if handler:
            handler(question, answer)
        else:
            answer({"error": f"unknown question: this ranklaunch answers {', '.join(map(str, self._handlers))}"})

    def _ask(
        self, question: Mapping[str, Any], answered: Callable[[Answers], object], judge: Callable[[Mapping[str, Any]], object] = len
    ) -> None:
        try:
            self._all_nodes.ask(question, answered, judge)
        except (WireError, ValueError, TypeError):  # larger than a message
            answered({})

    def _do(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return this node's answer to a question of any node."""
        if question.get(DO) == "status":
            return self._node_state()
        return self._to_save(question) if question.get(DO) == "save" else {}

    # Status

    def _status(self, question: Mapping[str, Any], answer: Answer) -> None:
        self._ask({DO: "status"}, partial(self._answer_status, answer), _judge_status)

    def _answer_status(self, answer: Answer, answers: Answers) -> None:
        answer(self._compiled(answers))

    def _node_state(self) -> dict[str, Any]:
        """Return the state of this node."""
        phase, waiting = self._asked.phase()
        attempt = self._asked.attempt()
        plan, known, more = attempt.plan, attempt.launchers.living(), self._asked.of_ranks()
        recorded = self._records(attempt)
        recorded_facts = recorded.of_ranks(() if plan.job.is_idle else plan.job.node.ranks, known)
        more = {rank: {**more.get(rank, {}), **recorded_facts.get(rank, {})} for rank in (*more, *recorded_facts)}
        ranks = rank_states.ranks(plan, known, attempt.logs.by_rank, more, self._loop.clock())
        if phase == "done":  # all ranks have ended with 0
            ranks = [{**each, "state": rank_states.STATES["Z"]} if each.get("state") == "unknown" else each for each in ranks]
        state = {"host": plan.job.node.host, "phase": phase, "waiting": waiting, "launchers": recorded.launchers(), "ranks": ranks}
        return {**state, **self._asked.present()}

    def _records(self, attempt: Attempt) -> Recorded:
        folder = folders.records(attempt.record.folder, attempt.plan.job.node_index)
        if self._recorded is None or self._recorded.folder != folder:
            self._recorded = Recorded(folder)
        self._recorded.look()
        return self._recorded

    def _compiled(self, answers: Answers) -> dict[str, Any]:
        """Return the answer of the whole job (ranklaunch.status/1). age_s: seconds since a node answered, None if it never has."""
        plan, now = self._plan, self._loop.clock()
        here = plan.job.node_index
        self._last_answers.update({node: (now, each) for node, each in answers.items()})
        node_answers = dict(sorted({**self._last_answers, here: (now, self._node_state())}.items()))
        silence = _silence(*node_answers[0], now) if 0 in node_answers else None
        ranks = (_aged(rank, now - at) for at, each in node_answers.values() for rank in each["ranks"])
        return {
            "schema": SCHEMA, "job": plan.job.name, "platform": plan.job.platform, "method": plan.method, "attempt": plan.job.attempt,
            "time": time_now(), "node": here,
            "nodes": [{"node": i, "host": each.host, **_node(node_answers.get(i), now)} for i, each in enumerate(plan.job.everyone)],
            "silence": silence, "hang": node_answers[here][1].get("hang"),
            "launchers": [{"node": i, **launcher} for i, (_, each) in node_answers.items() for launcher in each.get("launchers", ())],
            "ranks": _merged(ranks),
        }  # fmt: skip

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
        elif deadline is None and not self._plan.save.wanted:
            answer({"error": "no way is known to ask this trainer to save; set RANKLAUNCH_SAVE_SIGNAL or RANKLAUNCH_SAVE_FILE"})
        else:
            self._ask({DO: "save", "deadline_s": deadline}, partial(self._answer_save, answer))

    def _answer_save(self, answer: Answer, answers: Answers) -> None:
        answer(self._asked_to_save(answers))

    def _asked_to_save(self, answers: Answers) -> dict[str, Any]:
        """Return the answer for all nodes. silent: nodes that have not answered in time."""
        silent = [node.index for node in self._plan.job.everyone if node.index not in answers]
        return {"nodes": [{"node": i, **each, "ranks": None} for i, each in sorted(answers.items())], "silent": silent}

    def _to_save(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        """Ask the ranks of this node to save. With a deadline, node 0 stops the job so early that the grace period ends before it."""
        plan, deadline = self._plan, question.get("deadline_s")
        if not _is_deadline(deadline):
            msg = f"deadline_s {deadline!r:.80}"
            raise ValueError(msg)
        result = self._saving.ask(plan.save, self._asked.attempt().record) if plan.save.wanted else {}
        if deadline is not None:
            remaining_s = max(float(deadline) - MARGIN_S, float(deadline) / 2)
            self._asked.end_by(self._loop.clock() + remaining_s, self._saving.ways)
            for_saves_s = remaining_s * SAVES_SHARE if self._saving.ways else min(ANSWERS_S, remaining_s / 2)
            stop_in_s = max(remaining_s - plan.limits.grace_s, for_saves_s)
            if plan.job.node_index == 0:  # its stop reaches all nodes
                self._loop.after(stop_in_s, self._asked.stop)
                result["stop_in_s"] = round(stop_in_s, 1)
        return result


def _is_deadline(value: object) -> bool:
    return value is None or (isinstance(value, (int, float)) and 0 <= value <= MOST_S)


def _judge_status(answer: Mapping[str, Any]) -> None:
    for key in ("phase", "waiting"):
        text(dict(answer), key)
    _silence(0.0, answer, 0.0)
    for rank in answer["ranks"]:
        int(dict(rank)["rank"])
    for launcher in answer.get("launchers", ()):
        text(dict(launcher), "name")


def _silence(at: float, answer: Mapping[str, Any], now: float) -> dict[str, Any] | None:
    """Return the silence that node 0 reported at time `at`, as of now; None if the job is not watched for hangs."""
    silence = answer.get("silence")
    if not isinstance(silence, dict):
        return None
    seconds, limit_s = float(silence["seconds"]), float(silence["limit_s"])
    aged = round(seconds + now - at, 1) if seconds else 0.0
    setting, then_s = str(silence["setting"])[:MOST_SETTING], float(silence.get("then_s", limit_s))
    return {"seconds": aged, "limit_s": limit_s, "setting": setting, "then_s": then_s}


def _merged(ranks: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return each rank as its own node reports it; if another node reads the rank's output, with the fields of that node."""
    every = [*ranks]
    elsewhere = {rank["rank"]: rank for rank in every if "node" not in rank}
    return [{**rank, **(elsewhere.get(rank["rank"], {}) if rank.get("output_bytes") is None else {})} for rank in every if "node" in rank]


def _aged(rank: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """Return a rank of an answer that is `seconds` old, with last_output_s as of now."""
    wrote = rank.get("last_output_s")
    if isinstance(wrote, (int, float)) and 0 <= wrote < MOST_S:
        return {**rank, "last_output_s": round(wrote + seconds, 1)}
    return dict(rank)


def _node(answer: tuple[float, Mapping[str, Any]] | None, now: float) -> Mapping[str, Any]:
    if not answer:
        return _NEVER_ANSWERED
    at, facts = answer
    return {"phase": facts["phase"], "waiting": facts["waiting"], "age_s": round(now - at, 1)}
