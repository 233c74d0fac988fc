"""Hang watch, a companion of an attempt: each node looks at its ranks by one timer, and reports each window to node 0."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ranklaunch.hangs import devices, expect, steps
from ranklaunch.hangs.alarms import HANG, SAMPLE, Judging
from ranklaunch.hangs.detector import Limits, moved
from ranklaunch.hangs.frames import Frame, packed
from ranklaunch.hangs.rank_lines import Heard
from ranklaunch.hangs.sample import DEVICES, Device, Place, Traffic, Window, flows, works
from ranklaunch.hangs.sampler import Sampler, traffic
from ranklaunch.hangs.uncaught import Uncaught
from ranklaunch.output.pipe import Output
from ranklaunch.processes.children import LEADING
from ranklaunch.supervise.context import Companion
from ranklaunch.system.tree import Hearing, Identity
from ranklaunch.verdict import folders

if TYPE_CHECKING:
    from ranklaunch.supervise.attempt import Attempt

RESTS = 2  # looks


class Watching(Companion):
    """Watch of one node, from the launch to the end."""

    def __init__(self, attempt: Attempt) -> None:
        self._of = attempt
        plan = attempt.plan
        self._limits = Limits(plan.watch.hang_s, plan.watch.first_step_s)
        self._looks = max(2, round(self._limits.window_s / plan.watch.look_s))
        self._here = plan.job.node_index
        self._sampler = Sampler()
        self._uncaught = Uncaught(folders.records(attempt.record.folder, plan.job.node_index))
        self._window = Window()
        self._count = 0
        self._rests = 0  # looks that are left out, since evidence was being taken
        self._ranks: list[Identity] = []  # that live
        self._devices: list[list[Device]] = []  # what the tool has said, the last two times
        self._hang: dict[str, Any] | None = None
        self._judging: Judging | None = None  # on node 0
        self._recorded = "over"  # text of the last event about a hang
        self._tool: devices.Tool | None = None
        now = attempt.loop.clock()
        launched_at = now - plan.watch.look_s  # before that nobody looks
        self._heard = Heard(expect.parse(plan.watch.expect))
        attempt.nodes.hear(HANG, self._on_hang)
        if self._here == 0 or not plan.muster:
            self._judging = Judging(attempt, self._limits, launched_at)
        if plan.job.accelerator in devices.TOOLS:
            argv, self._parse = devices.TOOLS[plan.job.accelerator]
            self._tool = devices.Tool(argv, attempt.around.env, attempt.loop, self._on_devices)
        self._began_at, self._traffic = now, traffic()  # of the window, of which all looks but the first are still to come
        self._look()

    def of_ranks(self) -> Mapping[int, Mapping[str, Any]]:
        """Return the last steps of ranks."""
        return {rank: _told(each.last.place, each.seconds) for rank, each in self._heard.steps.items() if each.last}

    def present(self) -> Mapping[str, Any]:
        hang = {**self._hang, "reason": self._recorded} if self._hang else None
        return {"hang": hang, "silence": self._judging.silence() if self._judging else None}

    def facts(self) -> Mapping[str, object]:
        return {"hang": self._hang} if self._hang else {}

    def close(self) -> None:
        if self._tool:
            self._tool.close()

    # A look, and a window of some

    def _look(self) -> None:
        """Look at the ranks, and set the timer for the next look. An error here must not end the job."""
        if self._of.ending:
            return
        try:
            if not self._leaves_out():
                self._look_at_all(self._of.loop.clock())
        except OSError:  # no descriptor left
            pass
        except Exception as error:  # ours
            self._of.say(f"nobody watches any more whether the job hangs: a defect in ranklaunch: {type(error).__name__}: {error}")
            return
        self._of.loop.after(self._limits.window_s / self._looks, self._look)

    def _leaves_out(self) -> bool:
        """Return True to skip this look: evidence is being taken, or was just now. Recorders compute, write dumps and print, and none of
        it is a sign of life. The next look begins a new window, and a rank that is silent then counts as silent all the time."""
        if self._of.companions.taking:
            if not self._rests and self._count > 1:  # who asks for it again and again puts off no alarm
                self._tell(self._of.loop.clock(), self._of.logs.by_rank)
            self._rests = RESTS
        if not self._rests:
            return False
        self._rests -= 1
        self._window, self._count = Window(), 0
        return True

    def _look_at_all(self, now: float) -> None:
        if not self._count:
            self._began_at, self._traffic = now, traffic()
        outputs, slots = self._of.logs.by_rank, self._of.plan.job.node.slots
        known = len(self._heard.given_up)
        written = self._heard.look(outputs, now)
        for rule in list(self._heard.given_up.values())[known:]:
            self._of.say(f"RANKLAUNCH_EXPECT: {rule}: takes too long on what the ranks write, and is not looked at any more")
        looks = self._sampler.look(self._of.launchers.living(), slots, self._launchers(), written)
        self._window.look(now, looks)
        processes = [look.process for rank, look in looks.items() if rank is not None and look.state]
        self._ranks = [process for process in processes if isinstance(process, Identity)]
        self._count += 1
        if self._count > self._looks:
            self._tell(now, outputs)

    def _launchers(self) -> list[Identity]:
        return [child.identity for child in self._of.children.running.values() if child.role in LEADING]

    def _tell(self, now: float, outputs: Mapping[int, Output]) -> None:
        self._count = 1  # the last look of a window is the first of the next
        seconds, before = now - self._began_at, self._traffic
        self._began_at, self._traffic = now, traffic()
        frame = Frame(
            seconds=seconds,
            ranks=tuple(map(self._heard.add, self._window.close())),
            traffic=flows(_between(before, self._traffic), seconds, self._place()),
            devices=works(*self._devices) if len(self._devices) == 2 else None,
            rules=self._heard.rules(now),
            hears=self._any_hears(),
            raised=tuple(self._uncaught.look(self._of.launchers.living(), now)),
        )
        self._of.nodes.tell_node_0(SAMPLE, packed(frame))
        if self._tool and moved(frame, begun=True) <= {DEVICES}:
            self._tool.ask()  # only then: tools cost more than all the rest, and change nothing while anything else moves
        else:
            self._devices = []

    def _any_hears(self) -> bool | None:
        hearing = Hearing(signal.SIGTERM)
        return any(hearing.of(rank) for rank in self._ranks) if self._ranks else None

    def _place(self) -> Place:
        """Return the connections that bring packets of their own. Node 0 has the muster's, and mostly the store of the ranks."""
        job = self._of.plan.job
        others = len(job.everyone) - 1
        return Place(others, job.world_size) if self._here == 0 else Place(min(1, others), job.node.slots)

    def _on_devices(self, answer: str) -> None:
        devices = self._parse(answer)
        self._devices = [*(self._devices or [devices]), devices][-2:]

    def _on_hang(self, node: int, body: Any) -> None:
        """Keep the alarm that node 0 announces, or forget it."""
        if body is not None and not isinstance(body, dict):
            msg = "expected an object"
            raise TypeError(msg)
        text = str(body["reason"]) if body else "over"
        if self._here != 0 and text != self._recorded:
            since = str(body["since"]) if body and not body.get("rule") else None  # a rule is broken while all moves
            self._of.record.event("hang", text=text, since=since)
        self._recorded = text
        self._hang = {key: body[key] for key in ("since", "signals", "suspects", "groups") if key in body} if body else None


def _between(before: Traffic | None, after: Traffic | None) -> Traffic | None:
    if before is None or after is None:
        return None
    return Traffic(max(0, after.packets - before.packets), max(0, after.bytes - before.bytes))


def _told(place: steps.Place, seconds: float | None) -> dict[str, Any]:
    """Return a step as status has it. The number of all steps is unknown if steps are counted anew in each epoch."""
    return {"step": place.step, "steps": (place.of or None) if not place.epoch else None, "step_s": seconds and round(seconds, 4)}
