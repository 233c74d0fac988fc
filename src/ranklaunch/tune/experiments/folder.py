"""Folder of a search: its lock, the results of earlier starts, and the files with results."""

from __future__ import annotations

import time
from collections.abc import Callable

from ranklaunch.files import join
from ranklaunch.system import disk
from ranklaunch.tune import plot, results, table
from ranklaunch.tune.experiments import best
from ranklaunch.tune.experiments import site as sites
from ranklaunch.tune.experiments.site import Site
from ranklaunch.tune.search import Search


class Folder:
    """Folder of a search. site: replaced when a rank table changes the order of the nodes."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self._began = time.monotonic()
        self._locks: dict[str, int] = {}  # open descriptors that hold the lock, by folder

    def lock(self) -> str:
        """Lock the folders against other searches. Return "", or the folder that another search uses."""
        for folder in sorted({self.site.results, self.site.exps} - self._locks.keys()):
            disk.make_folder(folder)
            fd = disk.lock(folder)
            if fd is None:
                return folder
            self._locks[folder] = fd
        return ""

    def begin(self, say: Callable[[str], None]) -> Search:
        """Return the search with the results of earlier starts. Print the number of candidates, and warnings."""
        settings = sites.settings(self.site)
        known = sites.known(self.site, settings)
        search = Search(settings, known)
        for text in settings.warnings:
            say(f"warning: {text}")
        size, source = sites.device_memory(self.site, settings.slots)
        memory = f"{size / (1 << 30):.1f} GiB for each rank ({source})" if size else "memory unknown"
        say(f"tune: {len(search.space)} candidates, {memory}")
        if known:
            say(f"tune: {len(known)} experiments of an earlier start are in {self.site.exps}, and are not repeated")
        return search

    def write(self, search: Search) -> None:
        """Write all results so far. Files are renamed into place: readers never see an incomplete file."""
        seconds = time.monotonic() - self._began
        self._write(results.RESULTS, results.document_text(search, seconds))
        self._write(results.PLOT, plot.drawn(search))
        if search.best:
            self._write(results.OPTIMAL, results.optimal_text(search))

    def close(self, search: Search, say: Callable[[str], None]) -> None:
        """Write and print the results at the end of a search, for any end."""
        lines = [*table.lines(search), *best.command_line(self.site, search)]
        try:
            self.write(search)
            self._write(results.SUMMARY, "".join(f"{line}\n" for line in lines))
        except OSError as error:  # a full disk
            say(f"tune: {error.filename or self.site.results}: cannot be written: {error.strerror}")
        except disk.NotRegularError as error:
            say(f"tune: {error}")
        for line in lines:
            say(line)

    def summary(self, search: Search) -> str:
        """Return one sentence about the best configuration, for the verdict."""
        chosen, metric = search.best, search.settings.metric
        assert chosen
        value = f"{chosen.metrics[metric]:.4g} {table.unit(metric, chosen, table.CONSOLE_UNITS)}"
        again = results.difference(search)
        confirmed = f", in a second run {again:+.1%}" if again is not None else ""
        path = join(self.site.results, results.OPTIMAL)
        return f"the best of {len(search.results)} experiments is {chosen.name}, {value}{confirmed}: {path}"

    def _write(self, name: str, text: str) -> None:
        path = join(self.site.results, name)
        try:
            disk.write(path, text.encode(errors="backslashreplace"), 0o644)
        except OSError as error:
            raise OSError(error.errno, error.strerror, path) from None
