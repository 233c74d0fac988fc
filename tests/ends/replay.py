"""Judges a whole job again from the values of ends.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ends import cases

from ranklaunch.diagnose.suspects import diagnose
from ranklaunch.ends import model
from ranklaunch.ends.model import NodeEnds
from ranklaunch.env.job import Job, Node, Program
from ranklaunch.muster.events import Decide
from ranklaunch.plan.model import Limits, Plan, Rounds, Watch
from ranklaunch.restarts.decision import Decider
from ranklaunch.supervise import judge, teardown
from ranklaunch.supervise.diagnosis import Catalogue
from ranklaunch.supervise.judge import Circumstances, Ending
from ranklaunch.system.memory import UNKNOWN
from ranklaunch.verdict import blame, reading
from ranklaunch.verdict.blame import Judgement, Suspect
from ranklaunch.verdict.model import Failure

Ends = Mapping[str, Any]  # of one node, as ends.json has it


class NodeReplay:
    """One node of a job, in one round."""

    def __init__(self, ends: Ends) -> None:
        self.node = node_ends(ends)
        self.index = self.node.job.node_index
        self.plan = _plan(self.node)
        self.ending = _ending(self.node)
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
            decided = teardown.alone(own, node.state if self._decider else {}, node.plan, node.ending, node.circumstances)
        return {node.index: decided if alone or not _is_cut_off(node) else _without_node_0(node) for node in found}, again

    def _alone(self, node: NodeReplay) -> Judgement:
        return judge.judgement(node.ending, node.suspects(), (), (), node.circumstances)


def _at_node_0(nodes: Sequence[NodeReplay]) -> Judgement:
    """As the hub judges."""
    if all(node.ending.outcome == "succeeded" for node in nodes):
        return Judgement("succeeded", 0, nodes[0].ending.reason)
    told = [each for node in nodes if node.index == 0 for each in node.lost]
    for node in nodes:
        if node.ending.outcome != "succeeded" and not _is_cut_off(node):
            told += blame.ordered(node.suspects())[: 1 + blame.MOST_FAILURES]
    return blame.judge(told) if told else judge.judgement(nodes[0].ending, (), (), (), nodes[0].circumstances)


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


def node_ends(ends: Ends) -> NodeEnds:
    """Return ends.json of a node as values."""
    memory, stop = ends["memory"], ends["stop"]
    return NodeEnds(
        job=_job(ends["job"]),
        ending=model.Decided(**{**ends["ending"], "culprit": reading._culprit(ends["ending"]["culprit"])}),
        stop=model.Stop(**stop) if stop else None,
        memory=model.MemoryKills(**{**memory, "seen": tuple(map(tuple, memory["seen"]))}),
        state=ends["state"],
        lost=tuple(map(reading.suspect, ends["lost"])),
        ends=tuple(map(_end, ends["ends"])),
        others=tuple(model.OtherProcess(**{**each, "records": tuple(each["records"])}) for each in ends["others"]),
    )


def _job(job: Mapping[str, Any]) -> model.JobFacts:
    nodes, idle = (tuple(model.NodeFacts(**each) for each in job[key]) for key in ("nodes", "idle"))
    outputs, kept = (_outputs(job[key]) for key in ("outputs", "kept"))
    restarts = job["restarts"]
    settings = model.RestartSettings(**{**restarts, "never": tuple(restarts["never"])}) if restarts else None
    more = {"nodes": nodes, "idle": idle, "program": tuple(job["program"]), "outputs": outputs, "kept": kept, "restarts": settings}
    return model.JobFacts(**{**job, **more})


def _outputs(outputs: Mapping[str, Any] | None) -> model.Outputs | None:
    return model.Outputs(tuple(outputs["ranks"]), tuple(outputs["marks"])) if outputs else None


def _end(end: Mapping[str, Any]) -> model.RankEnd:
    at_stop = model.Tail(**end["at_stop"]) if end["at_stop"] else None
    sent = tuple(model.Sent(**each) for each in end["sent"])
    return model.RankEnd(
        **{**end, "at_stop": at_stop, "sent": sent, "launcher": _launcher(end["launcher"]), "records": tuple(end["records"])}
    )


def _launcher(launcher: Mapping[str, Any] | None) -> model.Launcher | None:
    if not launcher:
        return None
    reports = {"reported": _failure(launcher["reported"]), "by_host": tuple(filter(None, map(_failure, launcher["by_host"])))}
    return model.Launcher(**{**launcher, "expected": tuple(launcher["expected"]), **reports})


def _failure(reported: Mapping[str, Any] | None) -> Failure | None:
    return Failure(**{**reported, "victims": tuple(map(tuple, reported["victims"]))}) if reported else None


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


def _ending(node: NodeEnds) -> Ending:
    ending = node.ending
    return Ending(
        ending.outcome, ending.exit_code, ending.reason, None, None, ending.culprit, ending.from_elsewhere, ending.at, ending.killed,
        ending.hung,
    )  # fmt: skip


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
