"""Part of node 0 in a search: sends experiments to nodes, and hands their results to the search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ranklaunch.cli.child_command import free_ports
from ranklaunch.errors import ConfigError
from ranklaunch.fields import as_dict, names
from ranklaunch.files import join
from ranklaunch.muster.wire import WireError
from ranklaunch.supervise.attempt import Attempt
from ranklaunch.supervise.ending import failed
from ranklaunch.system import disk
from ranklaunch.system.loop import Timer
from ranklaunch.tune import results, table
from ranklaunch.tune.experiments.experiment import Order
from ranklaunch.tune.experiments.folder import Folder
from ranklaunch.tune.experiments.site import NAME, TOPIC
from ranklaunch.tune.model import KINDS, OK, PROFILE, STATUSES, Experiment, Result
from ranklaunch.tune.search import Search
from ranklaunch.tune.table import CONSOLE_UNITS


class Running:
    """Experiment in progress. nodes: nodes on which the experiment has not ended. led: True once the other
    nodes have the order with the ports of the first node."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.nodes = set(order.nodes)
        self.result: Result | None = None
        self.timer: Timer | None = None
        self.led = len(order.nodes) == 1


class Coordinator:
    """Sends orders to nodes, ends experiments that hang, and hands results to the search."""

    def __init__(self, attempt: Attempt, folder: Folder, search: Search) -> None:
        self.search = search
        self._attempt = attempt
        self._folder = folder
        self._site = folder.site
        self._running: dict[str, Running] = {}
        self._free = list(range(len(self._site.plan.job.nodes)))
        self._ended = 0
        self._began = attempt.loop.clock()
        self._over = False

    def begin(self) -> None:
        self._began = self._attempt.loop.clock()
        self._fill()

    def on_message(self, node: int, body: Mapping[str, Any]) -> None:
        """Read a message of a node, and act in a later turn of the loop. Raises ValueError, TypeError
        or LookupError."""
        running = self._running.get(body["name"])
        if not running or node not in running.nodes:
            return
        leads = node == running.order.leader
        if body["do"] == "led" and leads and not running.led:
            ports = tuple(int(port) for port in body["ports"])
            self._attempt.loop.after(0, self._on_led, running, ports)
        elif body["do"] == "ended":
            result = read_result(body["result"], running.order) if leads else None
            self._attempt.loop.after(0, self._on_end, running, node, result)

    # Experiments

    def _fill(self) -> None:
        """Start experiments on the free nodes; end the search if none runs and none remains."""
        for chosen in self.search.next(len(self._free)):
            self._start(chosen)
        if not self._running and not self._over:
            self._over = True
            self._finish()

    def _start(self, chosen: Experiment) -> None:
        nodes, self._free = tuple(self._free[: chosen.nodes]), self._free[chosen.nodes :]
        order = Order(chosen.name, chosen.kind, chosen.config, chosen.args, nodes, chosen.slots)
        running = self._running[chosen.name] = Running(order)
        self._order(running, (), nodes[:1])
        running.timer = self._attempt.loop.after(
            self._site.timeout_s,
            self._on_timeout,
            running,
        )

    def _on_led(self, running: Running, ports: tuple[int, ...]) -> None:
        running.led = True
        self._order(running, ports, running.order.nodes[1:])

    def _order(self, running: Running, ports: tuple[int, ...], nodes: Sequence[int]) -> None:
        order = {**as_dict(running.order), "ports": list(ports), "nodes": list(running.order.nodes)}
        self._tell({"do": "start", "experiment": order}, nodes)

    def _on_timeout(self, running: Running) -> None:
        started = running.order.nodes if running.led else running.order.nodes[:1]
        stop = {"do": "stop", "name": running.order.name, "after_s": self._site.timeout_s}
        self._tell(stop, started)
        running.nodes &= set(started)

    def _on_end(self, running: Running, node: int, result: Result | None) -> None:
        running.nodes.discard(node)
        if result:
            running.result = result
            if not running.led:  # the other nodes have never got the order
                running.nodes.clear()
        if running.nodes or running.order.name not in self._running or self._attempt.ending:
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
        path = join(self._site.folder(result.name), results.RESULT)
        disk.write(path, results.result_text(result, self.search.settings).encode(), 0o644)
        self.search.tell(result)
        self._folder.write(self.search)
        self._attempt.say(self._progress(result))

    def _finish(self) -> None:
        """Tell all nodes that the search is over, or to start the program with the best configuration."""
        search, attempt = self.search, self._attempt
        if not search.best:
            code, reason = failure(search)
            attempt.fail(failed(code, reason))
            return
        text = self._folder.summary(search)
        if not self._site.run:
            attempt.nodes.succeeds_with(text)
            self._tell({"do": "over", "text": text}, ())
            return
        args = dict(search.experiment(search.best.name).args)
        attempt.say(f"{text}; starting the program with it")
        self._tell(
            {
                "do": "best",
                "config": results.optimal(search) or {},
                "args": args,
                "port": free_ports(1)[0],
            },
            (),
        )

    def _tell(self, body: Mapping[str, Any], nodes: Sequence[int]) -> None:
        """Send a message to nodes, () for all of them. Raises ConfigError."""
        try:
            self._attempt.nodes.tell_nodes(TOPIC, body, nodes)
        except WireError as error:
            msg = f"the DeepSpeed configuration cannot be sent to the nodes: {error}"
            raise ConfigError(msg) from None

    # Console lines

    def _progress(self, result: Result) -> str:
        planned = self.search.planned
        number = len(self.search.results)
        count = f"experiment {number} of {'at most ' if planned else ''}{number + planned}"
        text = f"tune: {count}: {result.name}: {self._outcome(result)}, {result.seconds:.1f} s"
        best = self.search.best
        if best and best.name != result.name:
            text = f"{text}; best so far {best.name}: {self._outcome(best)}"
        return f"{text}{self._time_left(planned)}"

    def _outcome(self, result: Result) -> str:
        metric = self.search.settings.metric
        if result.status == OK and metric in result.metrics:
            return f"{result.metrics[metric]:.4g} {table.unit(metric, result, CONSOLE_UNITS)}"
        if result.kind == PROFILE and result.status == OK:
            count = result.info.get("num_params", 0)
            return f"{count:,.0f} parameters" if count else "no count of parameters"
        return f"{result.status}{f' ({result.reason})' if result.reason else ''}"

    def _time_left(self, planned: int) -> str:
        if not planned or not self._ended:
            return ""
        seconds = (self._attempt.loop.clock() - self._began) / self._ended * planned
        return f"; at most {_duration(seconds)} left"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def failure(search: Search) -> tuple[int, str]:
    """Return the exit code of the first configuration that failed, and the reason for the failure of the search."""
    bad = [result for result in search.results if result.kind != PROFILE and result.status != OK]
    if not bad:
        return ConfigError.exit_code, f"no configuration can be tried: {search.reason}"
    first = bad[0]
    return (
        first.exit_code or 1,
        f"none of {len(bad)} configurations worked; {first.name}: {first.status}: {first.reason}",
    )


# Results of other nodes


def read_result(body: Mapping[str, Any], order: Order) -> Result:
    """Return the result in a message. Raises ValueError, TypeError or LookupError."""
    result = Result(**{name: body[name] for name in names(Result)})
    if result.kind not in KINDS or result.status not in STATUSES or not NAME.fullmatch(result.name):
        msg = f"a result with name {result.name!r:.80}, kind {result.kind!r:.80} and status {result.status!r:.80}"
        raise ValueError(msg)
    for numbers in (result.metrics, result.info):
        if not all(type(value) in (int, float) for value in numbers.values()):
            msg = f"{result.name}: a metric is no number"
            raise ValueError(msg)
    if (result.name, result.kind) != (order.name, order.kind):
        msg = f"a result of {result.name!r:.80} in place of {order.name}"
        raise ValueError(msg)
    return result
