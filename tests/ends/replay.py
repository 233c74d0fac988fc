"""Judges a whole job again from the values of ends.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ends import cases

from ranklaunch.diagnose.suspects import diagnose
from ranklaunch.ends.model import NodeEnds
from ranklaunch.env.job import Job, Node, Program
from ranklaunch.fields import from_dict
from ranklaunch.muster.events import Decide
from ranklaunch.plan.model import Limits, Plan, Rounds, Watch
from ranklaunch.restarts.decision import Decider
from ranklaunch.supervise import ending as ending_of_node
from ranklaunch.supervise import judge
from ranklaunch.supervise.ending import Circumstances
from ranklaunch.supervise.judge import Catalogue
from ranklaunch.system.memory import UNKNOWN
from ranklaunch.verdict import blame
from ranklaunch.verdict.blame import Judgement, Suspect

Ends = Mapping[str, Any]  # of one node, as ends.json has it


class NodeReplay:
    """One node of a job, in one round."""

    def __init__(self, ends: Ends) -> None:
        self.node = from_dict(NodeEnds, ends)
        self.index = self.node.job.node_index
        self.plan = _plan(self.node)
        self.ending = self.node.ending
        self.state = self.node.state

    def suspects(self) -> list[Suspect]:
        return [] if self.ending.outcome == "succeeded" else diagnose(self.node, Catalogue(self.plan))

    @property
    def lost(self) -> list[Suspect]:
        return [*self.node.lost]

    @property
    def circumstances(self) -> Circumstances:
        """Without processes: nothing is asked about them."""
        return Circumstances(UNKNOWN, lambda child, text: None, lambda process: None, lambda rank: b"", lambda at: at)


class JobReplay:
    """All rounds of a job, in their order."""

    def __init__(self, restarts: Mapping[str, Any] | None) -> None:
        self._decider = Decider(Rounds(restarts["most"], tuple(restarts["never"]), restarts["restarted_outside"])) if restarts else None

    def judge(self, nodes: Sequence[Ends], number: int) -> tuple[dict[int, Judgement], bool]:
        """By node: what its verdict says. And whether all ranks start again."""
        found = [NodeReplay(ends) for ends in nodes]
        alone = len(found[0].plan.job.everyone) == 1
        own = self._alone(found[0]) if alone else _at_node_0(found)
        again = False
        decided = own
        if self._decider and own.outcome == "failed":
            states = tuple(node.state for node in found)
            launched = any(state.get("launched") for state in states)
            away = "" if alone else _away(found)
            answer = self._decider(Decide(own, number, launched, away, states))
            again, decided = answer.again, answer.judgement
        if alone and decided is own:
            node = found[0]
            decided = judge.alone(own, node.state if self._decider else {}, node.plan, node.ending, node.circumstances)
        return {node.index: decided if alone or not _is_cut_off(node) else _without_node_0(node) for node in found}, again

    def _alone(self, node: NodeReplay) -> Judgement:
        return ending_of_node.judgement(node.ending, node.suspects(), (), (), node.circumstances)


def _at_node_0(nodes: Sequence[NodeReplay]) -> Judgement:
    """As the hub judges."""
    if all(node.ending.outcome == "succeeded" for node in nodes):
        return Judgement("succeeded", 0, nodes[0].ending.judgement.reason)
    told = [each for node in nodes if node.index == 0 for each in node.lost]
    for node in nodes:
        if node.ending.outcome != "succeeded" and not _is_cut_off(node):
            told += blame.ordered(node.suspects())[: 1 + blame.MOST_FAILURES]
    return blame.judge(told) if told else ending_of_node.judgement(nodes[0].ending, (), (), (), nodes[0].circumstances)


def _is_cut_off(node: NodeReplay) -> bool:
    return node.index != 0 and bool(node.lost)


def _without_node_0(node: NodeReplay) -> Judgement:
    return blame.judge([*node.suspects(), *node.lost])


def _away(nodes: Sequence[NodeReplay]) -> str:
    """The first node that is gone."""
    here = {node.index for node in nodes}
    job = nodes[0].plan.job
    if any(node.lost for node in nodes if node.index == 0):
        return "a node that node 0 has lost"
    return next((blame.place(node.index, node.host) for node in job.everyone if node.index not in here), "")


# Values


def _plan(node: NodeEnds) -> Plan:
    """Return a plan with what the catalogue and decisions about restarts look at."""
    job = node.job
    nodes, idle = ([Node(each.index, each.host, each.slots, each.first_rank) for each in some] for some in (job.nodes, job.idle))
    path, *args = job.program
    value = Job(
        job.name, job.platform, job.attempt, tuple(nodes), job.node_index, job.accelerator, Program(path, tuple(args), job.module),
        "python", "/job/logs", idle=tuple(idle), restart=job.restart,
    )  # fmt: skip
    rounds = Rounds(job.restarts.most, job.restarts.never, job.restarts.restarted_outside) if job.restarts else None
    return Plan(value, job.method, "", (), Limits(1.0, 1.0), runs=job.runs, watch=Watch(job.hang), rounds=rounds)


# Cases


def differences(case: Mapping[str, Any], *, kinds: bool = True) -> list[str]:
    """Return what today's code says otherwise of a job. kinds: False to compare errors by name alone."""
    found = []
    first, *_ = case["rounds"]
    job = JobReplay(cases.whole(first["nodes"][0])["job"]["restarts"])
    for told in case["rounds"]:
        nodes = [cases.whole(ends) for ends in told["nodes"]]
        number = nodes[0]["job"]["restart"]
        judged, again = job.judge(nodes, number)
        mine: dict[str, Any] = {str(index): cases.of_judgement(judgement) for index, judgement in judged.items()}
        expected = {**dict.fromkeys(mine, told.get("verdict")), **told.get("verdicts", {})}
        if not kinds:
            mine, expected = ({i: _without_kind(each) for i, each in some.items()} for some in (mine, expected))
        found += [f"round {number}, node {i}: {mine[i]}, expected {expected[i]}" for i in mine if mine[i] != expected[i]]
        if again != told.get("again", False):
            found.append(f"round {number}: {'all ranks start again' if again else 'no restart'}")
    return found


def _without_kind(verdict: Mapping[str, Any]) -> dict[str, Any]:
    error = verdict["error"]
    return {**verdict, "error": error and {**error, "kind": ""}}
