"""Hang watch, a plugin of an attempt: each node looks at its ranks by a timer, and reports each window to node 0."""

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

RESTS = 2  # looks left out after the collection of evidence


class Watching(Companion):
    """Watch of one node, from the launch to the end."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        plan = attempt.plan
        self._limits = Limits(plan.watch.hang_s, plan.watch.first_step_s)
        self._looks = max(2, round(self._limits.window_s / plan.watch.look_s))
        self._here = plan.job.node_index
        self._sampler = Sampler()
        self._uncaught = Uncaught(folders.records(attempt.record.folder, plan.job.node_index))
        self._window = Window()
        self._count = 0
        self._rests = 0  # looks that are still to be left out
        self._ranks: list[Identity] = []  # living ranks
        self._devices: list[list[Device]] = []  # the last two answers of the tool
        self._hang: dict[str, Any] | None = None
        self._judging: Judging | None = None  # on node 0
        self._recorded = "over"  # text of the last announcement about a hang
        self._tool: devices.Tool | None = None
        now = attempt.loop.clock()
        launched_at = now - plan.watch.look_s  # the first look comes look_s after the launch
        self._heard = Heard(expect.parse(plan.watch.expect))
        attempt.nodes.hear(HANG, self._on_hang)
        if self._here == 0 or not plan.muster:
            self._judging = Judging(attempt, self._limits, launched_at)
        if plan.job.accelerator in devices.TOOLS:
            argv, self._parse = devices.TOOLS[plan.job.accelerator]
            self._tool = devices.Tool(argv, attempt.around.env, attempt.loop, self._on_devices)
        self._began_at, self._traffic = now, traffic()  # begin of the window
        self._look()

    def of_ranks(self) -> Mapping[int, Mapping[str, Any]]:
        """Return the last step of each rank."""
        return {rank: _step_fields(each.last.place, each.seconds) for rank, each in self._heard.steps.items() if each.last}

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
        if self._attempt.ending:
            return
        try:
            if not self._leaves_out():
                self._look_at_all(self._attempt.loop.clock())
        except OSError:  # no descriptor left
            pass
        except Exception as error:  # a defect of this module
            self._attempt.say(f"the job is no longer watched for hangs: a defect in ranklaunch: {type(error).__name__}: {error}")
            return
        self._attempt.loop.after(self._limits.window_s / self._looks, self._look)

    def _leaves_out(self) -> bool:
        """Return True to skip this look, while evidence is collected and RESTS looks later.

        Recorders compute, write dumps and print, which is no sign of life of the ranks. The next look begins a new window, so the skipped
        time neither begins nor ends a silence.
        """
        if self._attempt.companions.taking:
            if not self._rests and self._count > 1:  # report the window so far: repeated collections must not delay an alarm
                self._report(self._attempt.loop.clock(), self._attempt.logs.by_rank)
            self._rests = RESTS
        if not self._rests:
            return False
        self._rests -= 1
        self._window, self._count = Window(), 0
        return True

    def _look_at_all(self, now: float) -> None:
        if not self._count:
            self._began_at, self._traffic = now, traffic()
        outputs, slots = self._attempt.logs.by_rank, self._attempt.plan.job.node.slots
        known = len(self._heard.given_up)
        written = self._heard.look(outputs, now)
        for rule in list(self._heard.given_up.values())[known:]:
            self._attempt.say(
                f"RANKLAUNCH_EXPECT: {rule}: takes too long on the ranks' output, and is not applied any more; simplify the expression"
            )
        looks = self._sampler.look(self._attempt.launchers.living(), slots, self._launchers(), written)
        self._window.look(now, looks)
        processes = [look.process for rank, look in looks.items() if rank is not None and look.state]
        self._ranks = [process for process in processes if isinstance(process, Identity)]
        self._count += 1
        if self._count > self._looks:
            self._report(now, outputs)

    def _launchers(self) -> list[Identity]:
        return [child.identity for child in self._attempt.children.running.values() if child.role in LEADING]

    def _report(self, now: float, outputs: Mapping[int, Output]) -> None:
        """Send the frame of this window to node 0, and begin the next window."""
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
            raised=tuple(self._uncaught.look(self._attempt.launchers.living(), now)),
        )
        self._attempt.nodes.tell_node_0(SAMPLE, packed(frame))
        if self._tool and moved(frame, begun=True) <= {DEVICES}:
            self._tool.ask()  # only now: the tools cost more than all other looks, and do not matter while something else moves
        else:
            self._devices = []

    def _any_hears(self) -> bool | None:
        """Return True if a living rank can catch SIGTERM, None without living ranks."""
        hearing = Hearing(signal.SIGTERM)
        return any(hearing.of(rank) for rank in self._ranks) if self._ranks else None

    def _place(self) -> Place:
        """Return the sources of packets that are no sign of life. Node 0 has a muster connection to each other node, and mostly the store
        of the ranks."""
        job = self._attempt.plan.job
        peers = len(job.everyone) - 1
        return Place(peers, job.world_size) if self._here == 0 else Place(min(1, peers), job.node.slots)

    def _on_devices(self, answer: str) -> None:
        devices = self._parse(answer)
        self._devices = [*(self._devices or [devices]), devices][-2:]

    def _on_hang(self, node: int, body: Any) -> None:
        """Store or clear the alarm of node 0."""
        if body is not None and not isinstance(body, dict):
            msg = "expected an object"
            raise TypeError(msg)
        text = str(body["reason"]) if body else "over"
        if self._here != 0 and text != self._recorded:
            since = str(body["since"]) if body and not body.get("rule") else None  # with a broken rule, the job still moves
            self._attempt.record.event("hang", text=text, since=since)
        self._recorded = text
        self._hang = {key: body[key] for key in ("since", "signals", "suspects", "groups") if key in body} if body else None


def _between(before: Traffic | None, after: Traffic | None) -> Traffic | None:
    if before is None or after is None:
        return None
    return Traffic(max(0, after.packets - before.packets), max(0, after.bytes - before.bytes))


def _step_fields(place: steps.Place, seconds: float | None) -> dict[str, Any]:
    """Return a step as fields of `ranklaunch status`. steps: the number of all steps; None if unknown, as when each epoch counts from 1."""
    return {"step": place.step, "steps": (place.of or None) if not place.epoch else None, "step_s": seconds and round(seconds, 4)}
