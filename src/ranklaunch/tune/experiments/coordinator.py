"""Node 0's part in a search: which experiment runs on which nodes, for how long, and what its result leads to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ranklaunch.errors import ConfigError
from ranklaunch.fields import as_dict, names
from ranklaunch.files import join
from ranklaunch.system import disk
from ranklaunch.system.loop import Loop, Timer
from ranklaunch.tune import results, table
from ranklaunch.tune.experiments.experiment import Order
from ranklaunch.tune.experiments.site import NAME, Site
from ranklaunch.tune.model import KINDS, OK, PROFILE, STATUSES, Experiment, Result
from ranklaunch.tune.search import Search

UNITS = {"throughput": "samples/s", "latency": "s a step", "flops": "FLOPS a device"}


@dataclass(frozen=True)
class Voice:
    """tell: nodes, or all. end: the search is over. over: this node ends, whatever the search is at."""

    tell: Callable[[Mapping[str, Any], Sequence[int]], None]
    say: Callable[[str], None]
    write: Callable[[Search], None]
    end: Callable[[Search], None]
    over: Callable[[], bool]


class Running:
    """An experiment that has not ended on all of its nodes. left: those on which it has not."""

    def __init__(self, order: Order, since: float) -> None:
        self.order = order
        self.since = since
        self.left = set(order.nodes)
        self.result: Result | None = None
        self.timer: Timer | None = None
        self.led = len(order.nodes) == 1


class Director:
    def __init__(self, site: Site, search: Search, loop: Loop, voice: Voice) -> None:
        self.search = search
        self._site = site
        self._loop = loop
        self._voice = voice
        self._running: dict[str, Running] = {}
        self._free = list(range(len(site.plan.job.nodes)))
        self._ended = 0
        self._began = loop.clock()
        self._over = False

    def begin(self) -> None:
        self._began = self._loop.clock()
        self._fill()

    def on_word(self, node: int, body: Mapping[str, Any]) -> None:
        running = self._running.get(body["name"])
        if not running or node not in running.left:
            return
        if body["do"] == "led" and node == running.order.leader and not running.led:
            ports = tuple(int(port) for port in body["ports"])
            self._loop.after(0, lambda: self._on_led(running, ports))
        elif body["do"] == "ended":
            result = result_of(body["result"], running.order) if node == running.order.leader else None
            self._loop.after(0, lambda: self._on_end(running, node, result))

    # Experiments

    def _on_led(self, running: Running, ports: tuple[int, ...]) -> None:
        running.led = True
        self._tell_start(running, ports, running.order.nodes[1:])

    def _fill(self) -> None:
        """Starts what there is room for."""
        for chosen in self.search.next(len(self._free)):
            self._start(chosen)
        if self._running or self._over:
            return
        self._over = True
        self._voice.end(self.search)

    def _start(self, chosen: Experiment) -> None:
        nodes, self._free = tuple(self._free[: chosen.nodes]), self._free[chosen.nodes :]
        order = Order(chosen.name, chosen.kind, chosen.config, chosen.args, nodes, chosen.slots)
        running = self._running[chosen.name] = Running(order, self._loop.clock())
        self._tell_start(running, (), nodes[:1])
        running.timer = self._loop.after(self._site.timeout_s, lambda: self._hang(running))

    def _tell_start(self, running: Running, ports: tuple[int, ...], nodes: Sequence[int]) -> None:
        order = as_dict(running.order)
        self._voice.tell({"do": "start", "experiment": {**order, "ports": list(ports), "nodes": list(running.order.nodes)}}, nodes)

    def _hang(self, running: Running) -> None:
        started = running.order.nodes if running.led else running.order.nodes[:1]
        self._voice.tell({"do": "stop", "name": running.order.name, "after_s": self._site.timeout_s}, started)
        running.left &= set(started)

    def _on_end(self, running: Running, node: int, result: Result | None) -> None:
        running.left.discard(node)
        if result:
            running.result = result
            if not running.led:  # the others have not heard of it
                running.left.clear()
        if running.left or running.order.name not in self._running or self._voice.over():
            return
        if running.timer:
            running.timer.cancel()
        del self._running[running.order.name]
        self._free = sorted({*self._free, *running.order.nodes})
        assert running.result
        self._take(running.result)
        self._fill()

    def _take(self, result: Result) -> None:
        self._ended += 1
        disk.write(join(self._site.folder(result.name), results.RESULT), results.result_text(result, self.search.settings).encode(), 0o644)
        self.search.tell(result)
        self._voice.write(self.search)
        self._voice.say(self._progress(result))

    # What is said

    def _progress(self, result: Result) -> str:
        left = self.search.planned
        number = len(self.search.results)
        many = f"experiment {number} of {'at most ' if left else ''}{number + left}"
        text = f"tune: {many}: {result.name}: {self._told(result)}, {result.seconds:.1f} s"
        best = self.search.best
        beaten = f"; best so far {best.name}: {self._told(best)}" if best and best.name != result.name else ""
        return f"{text}{beaten}{self._time_left(left)}"

    def _told(self, result: Result) -> str:
        metric = self.search.settings.metric
        if result.status == OK and metric in result.metrics:
            return f"{result.metrics[metric]:.4g} {table.unit(metric, result, UNITS)}"
        if result.kind == PROFILE and result.status == OK:
            count = result.info.get("num_params", 0)
            return f"{count:,.0f} parameters" if count else "it tells no count of parameters"
        return f"{result.status}{f' ({result.reason})' if result.reason else ''}"

    def _time_left(self, left: int) -> str:
        if not left or not self._ended:
            return ""
        seconds = (self._loop.clock() - self._began) / self._ended * left
        return f"; at most {_duration(seconds)} left"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


# Results of other nodes


def result_of(body: Mapping[str, Any], order: Order) -> Result:
    """Of a word. Raises ValueError, TypeError or LookupError."""
    result = _result(body)
    if (result.name, result.kind) != (order.name, order.kind):
        msg = f"a result of {result.name!r:.80} in place of {order.name}"
        raise ValueError(msg)
    return result


def _result(values: Mapping[str, Any]) -> Result:
    result = Result(**{name: values[name] for name in names(Result)})
    if result.kind not in KINDS or result.status not in STATUSES or not NAME.fullmatch(result.name):
        msg = f"{result.name!r:.80} is {result.kind!r:.80} and {result.status!r:.80}"
        raise ValueError(msg)
    for numbers in (result.metrics, result.info):
        if not all(type(value) in (int, float) for value in numbers.values()):
            msg = f"{result.name}: numbers are missing"
            raise ValueError(msg)
    return result


def failure(search: Search) -> tuple[int, str]:
    """Where no configuration worked: the exit code of the first that did not, and why."""
    bad = [result for result in search.results if result.kind != PROFILE and result.status != OK]
    if not bad:
        return ConfigError.exit_code, f"no configuration can be tried: {search.reason}"
    first = bad[0]
    return first.exit_code or 1, f"none of {len(bad)} configurations worked; {first.name}: {first.status}: {first.reason}"
