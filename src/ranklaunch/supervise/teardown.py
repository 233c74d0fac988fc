"""The end of an attempt: what is left behind is removed, and its last words go to the console, into the record and into verdict.json."""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ranklaunch import errors, showing
from ranklaunch.errors import DEFECT
from ranklaunch.fields import as_dict
from ranklaunch.plan.model import Plan
from ranklaunch.processes.child import LAUNCHER, SERVICE
from ranklaunch.processes.children import Children
from ranklaunch.supervise import judge
from ranklaunch.supervise.record import Record, made_since
from ranklaunch.system import disk, tree
from ranklaunch.system.loop import Loop
from ranklaunch.system.signals import STOPPING
from ranklaunch.verdict import blame, folders
from ranklaunch.verdict.model import Verdict

if TYPE_CHECKING:
    from ranklaunch.ends.model import NodeEnds
    from ranklaunch.output.logs import Logs
    from ranklaunch.processes.child import Child
    from ranklaunch.processes.child_ranks import Watched
    from ranklaunch.processes.orphans import Leftovers
    from ranklaunch.restarts.cleaning import Held
    from ranklaunch.supervise.judge import Ending
    from ranklaunch.verdict.blame import Judgement, Suspect

EXCEPTIONS = "exception-"  # begins the name of a record of an exception
MOST_NAMES = 4096  # in the folder of records, that are looked at
KEEPERS = ("sleep", "sshd", "tail", "tini", "dumb-init")  # names of programs that do nothing themselves
AGAIN = 12  # last lines of a culprit whose output the console has shown already
MOST_SAID = 4  # different exceptions of ranks that have succeeded


def remember_ranks(children: Children, logs: Logs) -> None:
    """What they write from now on is about being ended. What launchers write about their ranks counts as before."""
    children.remember(but={child.identity for child in children.of((LAUNCHER,))}.__contains__)
    logs.remember()


def leftovers(children: Children, loop: Loop, say: Callable[[str], None], grace_s: float) -> Leftovers | None:
    """What ranks that have succeeded leave behind, and nobody has asked to end until now."""
    if not tree.has_children():
        return None
    try:
        from ranklaunch.processes.orphans import Leftovers

        return Leftovers(children, loop, say, grace_s)
    except (OSError, ImportError):  # no descriptor left
        return None


def of_success(plan: Plan, node: NodeEnds | None) -> Iterator[str]:
    """Yield a note for each exception by which programs of ranks ended, although these ended with 0. A shell's pipeline ends with the code
    of its last command."""
    from ranklaunch.diagnose import raised  # few jobs that succeed have records of exceptions

    program = plan.job.program.stands_for or plan.job.program
    by_line: dict[str, list[int]] = {}
    for rank, line in raised.despite_success(node) if node else ():
        by_line.setdefault(line, []).append(rank)
    why = "" if program.is_python else " (of `python train.py | tee log` a script has the code of tee: set -o pipefail)"
    for line, ranks in list(by_line.items())[:MOST_SAID]:
        their = "its program ended" if len(ranks) == 1 else "their programs ended"
        yield f"{errors.numbered(ranks, 'rank')} ended with 0, although {their} by an exception: {line}{why}"


def has_exceptions(record: Record, plan: Plan) -> bool:
    """True if a process of this node recorded an exception."""
    return any(name.startswith(EXCEPTIONS) for name in disk.names(folders.records(record.folder, plan.job.node_index), MOST_NAMES))


def keeps_node(running: Iterable[Child]) -> str:
    """Return why this node has succeeded with node 0: only programs that keep it for others run here, as a sleep, or an sshd for the ranks
    of an mpirun; "" if anything else does."""
    roots = [child.identity for child in running]
    living = [*roots, *(process for root in roots for process in tree.descendants(root.pid))]
    names = {entry.name for entry in map(tree.entry, (process.pid for process in living)) if entry}
    keepers = sorted(names & {*KEEPERS})
    is_kept = keepers and names <= {*tree.SHELLS, *KEEPERS}
    return f"node 0 has ended, and nothing ran here but {' and '.join(keepers)}" if is_kept else ""


def has_records(record: Record, plan: Plan) -> bool:
    """True if a process of this node recorded anything of itself."""
    return bool(disk.names(folders.records(record.folder, plan.job.node_index), 1))


def stuck(left: Iterable[tree.Identity]) -> Iterator[str]:
    """Yield a message for processes that outlived SIGKILL. Those that may not be signalled are in the verdict."""
    for process in left:
        if process not in tree.refused:
            yield f"process {process.pid} does not end even by SIGKILL: it is stuck in the kernel (a dead mount, a device)"


def unsignalled(left: Iterable[tree.Identity]) -> Iterator[str]:
    """Of processes that have become another user's, for the verdict."""
    for process in left:
        if process in tree.refused:
            yield f"{tree.refused[process]} could not be signalled: it may be left running"


def remove_sessions(children: Children) -> None:
    """The folders that launchers have made for a run, and did not live to remove."""
    if any(child.process.sessions for child in children.ended):
        try:
            from ranklaunch.processes import orphans

            orphans.remove_sessions(children)
        except (OSError, ImportError):  # no descriptor left
            pass


def more(plan: Plan, verdict: Verdict, facts: Mapping[str, Any], restarts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What verdict.json says beside the judgement. facts: of companions. restarts: what ended the rounds before."""
    found = dict(facts)
    if restarts:
        found["restarts"] = [dict(restart) for restart in restarts]
    if verdict.outcome != "succeeded":
        try:
            from ranklaunch.verdict import avoid
        except (OSError, ImportError):  # no descriptor left
            return found
        host = avoid.suspect(verdict, [node.host for node in plan.job.everyone], facts.get("hang"), restarts)
        found.update({"suspect_host": as_dict(host)} if host else {})
    return found


def shows_all(plan: Plan, verdict: Verdict, lost: Iterable[Suspect], agreed: bool) -> bool:
    """True on the node whose console has the whole verdict: that of the culprit, else node 0. The others show one line.

    lost: nodes that never reported, whose place node 0 takes. agreed: node 0 judged; else each node shows what it knows.
    """
    job = plan.job
    if any(process.node is not None for process in plan.processes):  # the nodes that are played have shown it
        return False
    where = verdict.culprit.node if verdict.culprit else 0
    where = 0 if where in {suspect.node for suspect in lost} else where
    return len(job.everyone) == 1 or where == job.node_index or not agreed


def _say_last_words(verdict: Verdict, say: Callable[..., None], most: int) -> None:
    """most: lines, 0 for none; a longer traceback keeps its beginning."""
    if not verdict.culprit or not most:
        return
    text, lines = blame.last_words(verdict.culprit)
    if len(lines) > most:
        try:
            from ranklaunch.diagnose.excerpt import last_lines  # few tracebacks are as long

            lines = last_lines("\n".join(lines), most)
        except (OSError, ImportError):  # no descriptor left
            lines = lines[-most:]
    if text:
        say(text, _bytes(lines))


def held(shared: frozenset[tuple[str, int]], before: Held | None) -> Held:
    """What the processes have, where others are to follow them. shared: as cleaning.held has it."""
    from ranklaunch.restarts import cleaning

    found = cleaning.held(shared)
    return found.and_more(before) if before else found


def failure(child: Child) -> Ending | None:
    """Of the job, by how a child has ended."""
    if child.failure_code:
        return judge.Ending("failed", child.code_of_job, "", child)
    if child.announced and child.announced.alive:
        return judge.Ending("failed", 128 + signal.SIGKILL, _left_running(child, child.announced.alive))
    if child.role == SERVICE and not child.process.may_end:
        return judge.Ending("failed", DEFECT, f"{child.process.name} ended while the ranks needed it")
    return None


def may_be_stopped(child: Child) -> bool:
    """Whether it may have ended because the job is being stopped: who signals all processes of a job, as Slurm does, may reach a service
    before this process, and sshd ends with 0 then."""
    return child.role == SERVICE and (not child.ended.code or child.ended.signal in STOPPING)


def _left_running(launcher: Child, ranks: Sequence[Watched]) -> str:
    """Of one that ended with 0 before these."""
    numbers = ", ".join(str(rank.rank) for rank in ranks)
    which, them = (f"ranks {numbers} were", "them") if len(ranks) > 1 else (f"rank {numbers} was", "it")
    return f"{launcher.process.name} ended with 0 while {which} still running: what held {them} was killed, most likely"


def is_stop_too(plan: Plan, ending: Ending, number: int, now: float) -> bool:
    """Whether an attempt that ends for a failure is stopped by this signal too: no round follows, or whoever sent it has sent it to the
    ranks as well, as Slurm does, and one has died of it first."""
    end = ending.child.end if ending.child else None  # a launcher whose rank has failed may live yet
    together = end and end.signal == number and now - end.at < blame.OF_A_STOP_S
    return ending.outcome == "failed" and bool(plan.rounds or together)


def alone(own: Judgement, state: Mapping[str, Any], plan: Plan, ending: Ending, circumstances: judge.Circumstances) -> Judgement:
    """What a node says by itself of its end, where no word of node 0's has come. state: as it was to hear it. Of nodes that are played
    those count that say of which rank's failure they ended: where one had failed by then, neither a stop nor a lost node decides."""
    told = map(circumstances.told, plan.processes) if own.outcome != "succeeded" else ()
    failed = [each for each in told if each and each.outcome == "failed"]
    if own.outcome == "stopped":
        return next(iter(failed), own)
    if failed and (not own.culprit or own.culprit.rank is None):
        at = blame.iso(circumstances.wall(ending.at))
        return next((each for each in failed if each.culprit and each.culprit.rank is not None and each.culprit.time < at), own)
    if "stop" not in state:
        return own
    from ranklaunch.restarts import decision

    return decision.stopped(own, [state]) or own


def node_ends(
    record: Record, plan: Plan, ending: Ending, ended: Sequence[Child], circumstances: judge.Circumstances, failing: Collection[int] = (),
) -> NodeEnds | None:  # fmt: skip
    """Return all ends of this node with the records of their processes; None if they cannot be read."""
    try:
        from ranklaunch.ends import collect  # only failures need it

        node = collect.of_node(plan, ending, ended, circumstances, failing)
        return collect.of_records(node, folders.records(record.folder, plan.job.node_index), circumstances.wall)
    except (OSError, ImportError, MemoryError):  # no descriptor or memory left
        return None


def keep_ends(
    record: Record, say: Callable[[str], None], node: NodeEnds, state: Mapping[str, Any], lost: Sequence[Suspect], run: str
) -> None:
    """Write ends.json. Whatever goes wrong, the job ends as it would without.

    state: as this node told it to node 0. lost: nodes that never reported. run: id of the job.
    """
    try:
        from ranklaunch.ends.model import as_json

        record.ends(as_json(replace(node, job=replace(node.job, run=run), state=dict(state), lost=tuple(lost))))
    except (OSError, ImportError, MemoryError):  # no descriptor or memory left
        return
    except Exception as error:
        say(f"a defect in ranklaunch; please report it: ends.json could not be made: {type(error).__name__}: {error}")


def report_round(verdict: Verdict, restart: Mapping[str, Any], record: Record, say: Callable[..., None], most: int) -> None:
    """Report a round that another one follows. restart: its entry in the verdict of the end. most: last lines of the culprit."""
    _say_last_words(verdict, say, most)
    record.event("end", outcome=verdict.outcome, exit_code=verdict.exit_code)
    if not record.of_round(verdict, restart):
        say(f"{record.folder}/{folders.ROUND} could not be written")
    say(f"{verdict.outcome} with exit code {verdict.exit_code}: {verdict.reason}; {restart.get('decision', 'starting all ranks again')}")


def report(
    plan: Plan, verdict: Verdict, record: Record, say: Callable[..., None], began: float, most: int, own: Collection[str]
) -> None:  # fmt: skip
    """Report the end: a failure as a block where `most` last lines of the culprit are to be shown, else as one line.

    began: of the attempt, in seconds since 1970. most: 0 on a node that another one speaks for. own: notes about this node alone.
    """
    _say_last_words(verdict, say, most)
    for path in plan.shows if verdict.outcome == "succeeded" else ():
        made = made_since(path, began)
        if made is not None:
            say(f"{path}:", made)
    record.event("end", outcome=verdict.outcome, exit_code=verdict.exit_code)
    path = record.verdict(verdict)
    end = f"{verdict.outcome} with exit code {verdict.exit_code}: {verdict.reason}"
    succeeded = verdict.outcome == "succeeded"
    notes = (*blame.advice(verdict.culprit), *verdict.notes) if most or succeeded else tuple(own)
    is_block = most > 0 and not succeeded
    where = f", verdict {path or '(could not be written)'}" if is_block or not path else ""
    logs = showing.printable(f"logs {record.folder}{where}")
    say(end if is_block else f"{end}; {logs}")
    for text in notes:
        say(text)
    if is_block:
        say(logs)


def _bytes(lines: Sequence[str]) -> list[bytes]:
    return [line.encode(errors="backslashreplace") for line in lines]
