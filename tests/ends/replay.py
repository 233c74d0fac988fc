"""Rebuilds from the values of ends.json what the judging code takes, and judges a whole job again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from ends import cases

from ranklaunch.adapters.launchers import started
from ranklaunch.ends.model import OtherProcess, RankEnd, Sent
from ranklaunch.muster.events import Decide
from ranklaunch.plan.model import Limits, Plan, Process, RankLog, RankOutputs, Rounds, Watch
from ranklaunch.read.job import Job, Node, Program
from ranklaunch.supervise import closing, judge
from ranklaunch.supervise.judge import Circumstances, Ending
from ranklaunch.supervise.ranks.below import Announced, Below, ByFiles, Watched
from ranklaunch.supervise.ranks.child import DECIDING, Child, End
from ranklaunch.supervise.ranks.children import Daemon
from ranklaunch.supervise.rounds.deciding import Decider
from ranklaunch.system import tree
from ranklaunch.system.memory import Memory
from ranklaunch.verdict import blame, reading
from ranklaunch.verdict.blame import Judgement, Suspect
from ranklaunch.verdict.model import Failure

Ends = Mapping[str, Any]  # of one node, as ends.json has it


class NodeReplay:
    """One node of a job, in one round."""

    def __init__(self, ends: Ends, *, recorded: bool = False) -> None:
        self.ends = ends
        self._recorded = recorded
        self.index: int = ends["job"]["node_index"]
        self.children = [_child(end, ends) for end in ends["ends"] if end["role"] not in ("below", "daemon")]
        self.plan = _plan(ends, [child.process for child in self.children if child.role in DECIDING])
        self.ending = _ending(ends["ending"], self.children)
        self.circumstances = self._circumstances()
        self.state = ends["state"]

    def suspects(self) -> list[Suspect]:
        return judge.suspects(self.plan, self.ending, self.children, self.circumstances)

    @property
    def lost(self) -> list[Suspect]:
        return [reading.suspect(each) for each in self.ends["lost"]]

    def _circumstances(self) -> Circumstances:
        ends, stop = self.ends["ends"], self.ends["stop"]
        memory = {**self.ends["memory"], "seen": tuple(map(tuple, self.ends["memory"]["seen"]))}
        return Circumstances(
            memory=Memory(**memory),
            explain=self._explain,
            told=lambda process: None,
            end_of_rank=lambda child, rank: child.below.end_of(rank) if child.below else None,
            tail_of_rank=lambda rank: next((_bytes(end["output"]) for end in ends if end["role"] == "below" and end["rank"] == rank), b""),
            wall=lambda at: at,
            wrote=lambda: [_wrote(end, self.plan.job.node.first_rank) for end in ends if end["at_ending"]],
            daemons=[Daemon(end["name"], end["pid"], end["signal"], end["at"]) for end in ends if end["role"] == "daemon"],
            stop=(stop["signal"], stop["at"]) if stop else None,
            ends=lambda circumstances: _values(self.ends),
        )

    def _explain(self, child: Child, text: str) -> Failure | None:
        """As Launchers.explained."""
        if child.role not in DECIDING:
            return None
        failing = any(end["launcher"] and end["launcher"]["failing"] for end in self.ends["ends"] if end["pid"] == child.identity.pid)
        if self._recorded:
            launcher = next(end["launcher"] for end in self.ends["ends"] if end["pid"] == child.identity.pid)
            return _failure(launcher["reported"]) if launcher else None
        return child.confirmed(None if child.was_killed and not failing else child.reported(text))


class JobReplay:
    """All rounds of a job, in their order. recorded: launchers' reports are those that were recorded, and not read from their outputs."""

    def __init__(self, restarts: Mapping[str, Any] | None, *, recorded: bool = False) -> None:
        self._recorded = recorded
        self._decider = Decider(Rounds(restarts["most"], tuple(restarts["never"]), restarts["restarted_outside"])) if restarts else None

    def judge(self, nodes: Sequence[Ends], number: int) -> tuple[dict[int, Judgement], bool]:
        """By node: what its verdict says. And whether all ranks start again."""
        found = [NodeReplay(ends, recorded=self._recorded) for ends in nodes]
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
            decided = closing.alone(own, node.state if self._decider else {}, node.plan, node.ending, node.circumstances)
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


def _values(ends: Ends) -> Any:
    """The same as values: of model.NodeEnds what rules look at."""
    found = [
        RankEnd(**{**end, "sent": tuple(Sent(**each) for each in end["sent"]), "records": tuple(end["records"])}) for end in ends["ends"]
    ]
    others = tuple(OtherProcess(each["pid"], each["start"], each["rank"], tuple(each["records"])) for each in ends["others"])
    return SimpleNamespace(job=SimpleNamespace(node_index=ends["job"]["node_index"]), ends=found, others=others)


def _bytes(text: str | None) -> bytes:
    return (text or "").encode()


def _failure(reported: Mapping[str, Any] | None) -> Failure | None:
    return Failure(**{**reported, "victims": tuple(map(tuple, reported["victims"]))}) if reported else None


def _wrote(end: Mapping[str, Any], first_rank: int) -> tuple[int, bytes, float]:
    text, at = end["at_ending"]["text"], end["at_ending"]["at"]
    rank = first_rank if end["rank"] is None else end["rank"]  # of a program that starts its ranks itself
    return rank, _bytes(end["output"] if text is None else text), at


def _plan(ends: Ends, processes: Sequence[Process]) -> Plan:
    job = ends["job"]
    nodes, idle = ([Node(n["index"], n["host"], n["slots"], n["first_rank"]) for n in job[key]] for key in ("nodes", "idle"))
    path, *args = job["program"]
    program = Program(path, tuple(args), job["module"])
    value = Job(
        job["name"], job["platform"], job["attempt"], tuple(nodes), job["node_index"], job["accelerator"], program, "python", "/job/logs",
        idle=tuple(idle), restart=job["restart"],
    )  # fmt: skip
    rounds = job["restarts"]
    return Plan(
        value, job["method"], "", tuple(processes), Limits(1.0, 1.0), outputs=_outputs(job["outputs"], kept=False),
        kept=_outputs(job["kept"], kept=True), runs=job["runs"], watch=Watch(job["hang"]),
        rounds=Rounds(rounds["most"], tuple(rounds["never"]), rounds["restarted_outside"]) if rounds else None,
    )  # fmt: skip


def _outputs(outputs: Mapping[str, Any] | None, *, kept: bool) -> RankOutputs | None:
    if not outputs:
        return None
    marks = outputs["marks"] or [""] * len(outputs["ranks"])
    logs = [RankLog(str(i), rank, "" if kept else "/job/log", mark) for i, (rank, mark) in enumerate(zip(outputs["ranks"], marks))]
    return RankOutputs("" if outputs["through_launcher"] else "/job/ranks", "", tuple(logs))


def _behaviour(method: str, launcher: Mapping[str, Any] | None) -> str:
    """Return the name of the class of a launcher with these facts."""
    if not launcher:
        return ""
    if launcher["remote"]:
        by_runner = "deepspeed.openmpi" if launcher["says_first"] else "deepspeed.node_0"
        return "mpirun" if method == "mpirun" else by_runner
    if launcher["ranks_below"] == 1:
        return "msrun" if method == "msrun" else "torchrun" if launcher["says_failing"] else "torchrun.restarting"
    return "deepspeed.autotuning" if launcher["ranks_below"] == 3 else "deepspeed" if launcher["announces"] else "deepspeed.elastic"


def _child(end: Mapping[str, Any], ends: Ends) -> Child:
    launcher = end["launcher"]
    argv = (end["name"] if launcher and launcher["own_pid"] else "/other",)
    behaviour = _behaviour(ends["job"]["method"], launcher)
    fails_as = launcher["fails_as"] if launcher else 0
    process = Process(end["name"], argv, "/job/log", end["rank"], end["local_rank"], behaviour=behaviour, fails_as=fails_as)
    planned = _plan(ends, [process])
    child = Child(process, tree.Identity(end["pid"], end["start"]), end["role"], started(process, planned))
    child.told = [each["signal"] for each in end["sent"]]
    child.told_at = end["sent"][0]["at"] if end["sent"] else None
    child.end = End(end["status"], end["at"], told=tuple(child.told))
    output, stop = _bytes(end["output"]), end["at_stop"]
    child.reader = SimpleNamespace(output=SimpleNamespace(tail=output, settled=lambda ended: output))  # type: ignore[assignment]
    child.said = None if stop is None else output if stop["text"] is None else _bytes(stop["text"])
    if launcher:
        child.reported_at, child.ends_ranks, child.dismissed = launcher["reported_at"], launcher["ends_ranks"], launcher["dismissed"]
        below = [each for each in ends["ends"] if each["role"] == "below" and each["parent"] == end["pid"] and each["pid"] is not None]
        if launcher["watched"] == "files":
            child.below = _below(child, below, launcher["expected"])
        elif launcher["watched"]:
            child.below = _announced(below, launcher["expected"])
    return child


def _watched(end: Mapping[str, Any]) -> Watched:
    rank = Watched(end["rank"], tree.Identity(end["pid"], end["start"]), "" if end["rank"] is not None else end["name"])
    rank.status, rank.ended, rank.ended_at = end["status"], end["at"] is not None, end["at"] or 0.0
    rank.by_itself, rank.surely = end["by_itself"], end["surely"]
    return rank


def _fill(ranks: Below, below: Sequence[Mapping[str, Any]]) -> None:
    found = [_watched(end) for end in below]
    ranks.named = {}
    ranks._all = {rank.pid: rank for rank in found}
    ranks.ended = [rank for rank in found if rank.ended]


def _below(child: Child, below: Sequence[Mapping[str, Any]], expected: Sequence[int]) -> ByFiles:
    ranks = ByFiles.__new__(ByFiles)
    _fill(ranks, below)
    ranks._launcher = child.identity
    ranks._found = {tree.Identity(end["pid"], end["start"]): end["rank"] for end in below}
    ranks.expected = expected
    return ranks


def _announced(below: Sequence[Mapping[str, Any]], expected: Sequence[int]) -> Announced:
    ranks = Announced.__new__(Announced)
    _fill(ranks, below)
    ranks.expected = ranks._numbers = expected
    return ranks


def _ending(ending: Mapping[str, Any], children: Sequence[Child]) -> Ending:
    child = next((child for child in children if ending["pid"] is not None and child.identity.pid == ending["pid"]), None)
    ranks = [*child.below._all.values()] if child and child.below else []
    return Ending(
        ending["outcome"], ending["exit_code"], ending["reason"], child,
        next((rank for rank in ranks if rank.pid == ending["rank_pid"]), None),
        reading._culprit(ending["culprit"]), ending["from_elsewhere"], ending["at"], ending["killed"], ending["hung"],
    )  # fmt: skip


# Cases


def differences(case: Mapping[str, Any]) -> list[str]:
    """What today's code says otherwise of a job."""
    found = []
    first, *_ = case["rounds"]
    job = JobReplay(cases.whole(first["nodes"][0])["job"]["restarts"], recorded=case.get("reports") == cases.RECORDED)
    for told in case["rounds"]:
        nodes = [cases.whole(ends) for ends in told["nodes"]]
        number = nodes[0]["job"]["restart"]
        judged, again = job.judge(nodes, number)
        mine = {str(index): cases.of_judgement(judgement) for index, judgement in judged.items()}
        expected = {**dict.fromkeys(mine, told.get("verdict")), **told.get("verdicts", {})}
        found += [f"round {number}, node {i}: {mine[i]}, expected {expected[i]}" for i in mine if mine[i] != expected[i]]
        if again != told.get("again", False):
            found.append(f"round {number}: {'all ranks start again' if again else 'no restart'}")
    return found
