"""A search: its settings by the command line, its messages, and its files."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Mapping
from typing import Any

from ranklaunch.command.below import free_ports, own_command
from ranklaunch.files import join
from ranklaunch.plan.model import Process
from ranklaunch.plan.planning import every_variable
from ranklaunch.read import settings, tuning
from ranklaunch.secrets import redact
from ranklaunch.system import disk, memory
from ranklaunch.system.disk import DiskFiles
from ranklaunch.tune import autotuning, plot, results, table, words
from ranklaunch.tune.experiments import coordinator
from ranklaunch.tune.experiments.site import CONFIG, Site, reader_of
from ranklaunch.tune.model import Result, Settings
from ranklaunch.tune.search import Search
from ranklaunch.verdict import folders

RUN_LOGS = folders.BEST  # in the log directory: of the program that is started with the best


class Searches:
    """site: as it is known by now; a rank table may still change the nodes' places."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self._began = time.monotonic()
        self._locks: dict[str, int] = {}  # by folder, descriptors that keep other searches out as long as they are open

    def settings(self) -> Settings:
        """Raises ConfigError."""
        site, reader = self.site, reader_of(self.site.request)
        job = site.plan.job
        given = {variable.option: reader.get(variable) for variable in tuning.OF_SEARCH if reader.given(variable)}
        nodes = reader.get(tuning.EXP_NODES) or len(job.nodes)
        least = min(node.slots for node in job.nodes)
        slots = reader.get(tuning.EXP_SLOTS) or least
        if nodes > len(job.nodes):
            reader.problem(f"{reader.told(tuning.EXP_NODES)}: the job has {len(job.nodes)}")
        if 1 < nodes < len(job.nodes) and not all(node.host for node in job.nodes):
            reader.problem(f"{reader.told(tuning.EXP_NODES)}: nodes other than node 0 cannot meet where {settings.HOSTS.both} names none")
        if slots > least:
            reader.problem(f"{reader.told(tuning.EXP_SLOTS)}: the node that has the fewest slots has {least}")
        reader.check()
        size, _ = self.memory(slots)
        return autotuning.settled(
            autotuning.loads(site.text, site.config),
            job.program.args,
            nodes,
            slots,
            given,
            memory=size,
            device=job.accelerator,
            seed=reader.get(tuning.SEED),
            width=len(job.nodes) // nodes,
            of=site.same,
        )

    def memory(self, slots: int) -> tuple[int, str]:
        """Return the memory of each device in bytes, and the source of the number."""
        reader = reader_of(self.site.request)
        if reader.given(tuning.MEMORY):
            return reader.get(tuning.MEMORY), reader.source(tuning.MEMORY)
        return memory.of_devices(self.site.plan.job.accelerator, self.site.request.env, slots)

    def known(self, settings_: Settings) -> tuple[Result, ...]:
        """Return the results of earlier starts."""
        return results.known(DiskFiles(), self.site.results, settings_, self.site.exps)

    def begin(self, say: Callable[[str], None]) -> Search:
        """Return the search, which begins with the results of earlier starts."""
        settings_ = self.settings()
        known = self.known(settings_)
        found = Search(settings_, known)
        for text in found.settings.warnings:
            say(f"warning: {text}")
        size, who = self.memory(found.settings.slots)
        say(f"tune: {len(found.space)} candidates, {f'{size / (1 << 30):.1f} GiB for each rank ({who})' if size else 'memory unknown'}")
        if known:
            say(f"tune: {len(known)} experiments of an earlier start are in {self.site.exps}, and are not repeated")
        return found

    def held(self) -> str:
        """The folder in which another search still writes, "" where none does: then no other one will."""
        for folder in sorted({self.site.results, self.site.exps} - self._locks.keys()):
            disk.make_folder(folder)
            fd = disk.lock(folder)
            if fd is None:
                return folder
            self._locks[folder] = fd
        return ""

    # Files

    def write(self, search: Search) -> None:
        """What is known by now, each file whole: whoever reads it while the search goes on finds no half of it."""
        seconds = time.monotonic() - self._began
        self._write(results.RESULTS, results.document_text(search, seconds))
        self._write(results.PLOT, plot.drawn(search))
        if search.best:
            self._write(results.OPTIMAL, results.optimal_text(search))

    def close(self, search: Search, say: Callable[[str], None]) -> None:
        """At the end, whichever it was."""
        lines = [*table.lines(search), *self._use(search)]
        try:
            self.write(search)
            self._write(results.SUMMARY, "".join(f"{line}\n" for line in lines))
        except OSError as error:  # a full disk
            say(f"tune: {error.filename or self.site.results}: cannot be written: {error.strerror}")
        except disk.NotRegularError as error:
            say(f"tune: {error}")
        for line in lines:
            say(line)

    def _use(self, search: Search) -> list[str]:
        """How to start the program with what was found, as this search was told to."""
        if not search.best:
            return []
        options = self.site.request.options
        logs = {settings.LOG_DIR.value: self._run_logs()} if settings.LOG_DIR.value in options else {}
        args = results.optimal_words(search, join(self.site.results, results.OPTIMAL))
        argv = ("ranklaunch", "run", *_options({**options, **logs}), "--", *self._program(), *args)
        return [f"with the best: {shlex.join(redact.argv(argv))}"]

    def summary(self, search: Search) -> str:
        best, metric = search.best, search.settings.metric
        assert best
        told = f"{best.metrics[metric]:.4g} {table.unit(metric, best, coordinator.UNITS)}"
        again = results.difference(search)
        confirmed = f", in a second run {again:+.1%}" if again is not None else ""
        return (
            f"the best of {len(search.results)} experiments is {best.name}, {told}{confirmed}: {join(self.site.results, results.OPTIMAL)}"
        )

    def optimal(self, search: Search) -> dict[str, Any]:
        return results.optimal(search) or {}

    def _write(self, name: str, text: str) -> None:
        path = join(self.site.results, name)
        try:
            disk.write(path, text.encode(errors="backslashreplace"), 0o644)
        except OSError as error:
            raise OSError(error.errno, error.strerror, path) from None

    # The program with what was found

    @staticmethod
    def free_port() -> int:
        return free_ports(1)[0]

    def best_run(self, body: Mapping[str, Any]) -> Process:
        """As the user would start it, in this very container; its nodes meet beside those of the search."""
        site = self.site
        job = site.plan.job
        logs = self._run_logs()
        config = join(folders.node(logs, job.node_index), CONFIG)
        disk.write(config, json.dumps(body["config"], indent=1).encode() + b"\n", 0o644)
        args = words.changed(job.program.args, config, {str(name): str(value) for name, value in body["args"].items()})
        here = {
            settings.METHOD.value: site.plan.method, settings.MUSTER_PORT.value: str(int(body["port"])), settings.LOG_DIR.value: logs,
        }  # fmt: skip
        argv = (*own_command(), "run", *_options({**site.request.options, **here}), "--", *self._program(), *args)
        unset = tuple(name for variable in tuning.VARIABLES for name in variable.names if name in site.request.env)
        return Process(
            name="run", argv=argv, log=join(logs, f"console_{job.node_index}.log"), unset=unset, cwd=job.folder or None,
            node=job.node_index,
        )  # fmt: skip

    def _run_logs(self) -> str:
        """Return the log directory of the run with the best configuration: another than the search's, so that both verdicts are kept."""
        return join(settings.log_dir(reader_of(self.site.request)), RUN_LOGS)

    def _program(self) -> tuple[str, ...]:
        """Return the program's words without its arguments."""
        program = self.site.plan.job.program
        return program.words[: len(program.words) - len(program.args)]


def _options(given: Mapping[str, str]) -> list[str]:
    """Return the options of `run` as words, without options of the search alone."""
    of_search = {variable.value for variable in tuning.VARIABLES}
    return [_option(name, value) for name, value in given.items() if name not in of_search]


def _option(name: str, value: str) -> str:
    variable = next(variable for variable in every_variable() if variable.value == name and variable.option)
    return variable.option if variable.is_switch and value == "true" else f"{variable.option}={value}"
