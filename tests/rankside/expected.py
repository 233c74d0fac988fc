"""The words in which the tables of this folder say which records a program leaves, and the comparison with the files.

Nothing here imports ranklaunch: records are read as plain JSON files.

    raised("ValueError", "loss is nan")        an exception record of the rank's main thread
    raised("OSError", "disk", source="thread") ... of another thread
    raised(..., by="child")                    ... of another process below the rank
    []                                         no record: the exit status is all there is
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MOST_BYTES = 64 << 10  # of a record
FIRST, LAST = 8, 8  # of a process' exception records, where it has more
NAME = re.compile(r"(?P<kind>rank|launcher|exception|exit)-(?P<node>\d+)-(?P<pid>\d+)-(?P<start>\d+)(?:-(?P<n>\d+))?\.json")


# What a program leaves


@dataclass(frozen=True)
class Raised:
    """An exception that nobody caught.

    type: without its module. message: whole; one that ends with "..." is a beginning; None: any.
    source: "main", "thread", or "process": a child of multiprocessing. thread: its name.
    by: "rank", or "child": another process below the rank.
    links: causes and contexts, as (link, type, message) in their order. None: not compared.
    function: of the innermost frame of the user's own code.
    in_library: the exception was raised in a library below that frame. None: not compared.
    times: how many records like this there are.
    optional: the record may be missing.
    """

    type: str
    message: str | None = None
    source: str = "main"
    thread: str = ""
    by: str = "rank"
    links: tuple[tuple[str, str, str | None], ...] | None = None
    function: str = ""
    in_library: bool | None = None
    times: int = 1
    optional: bool = False

    def __str__(self) -> str:
        words = [f"an exception record of the {self.by}", f"from {self.source} {self.thread}".rstrip(), self.type, repr(self.message)]
        words += [f"{link} {kind} {message!r}" for link, kind, message in self.links or ()]
        words += [f"in {self.function}()"] if self.function else []
        return ", ".join(words)

    def differences(self, record: Record) -> list[str]:
        return [*self._of_the_head(record), *self._of_the_chain(record.data.get("chain") or [])]

    def _of_the_head(self, record: Record) -> list[str]:
        wrong = [f"it is an {record.kind} record"] if record.kind != "exception" else []
        if record.by != self.by:
            wrong.append(f"it is the {record.by}'s")
        if record.data.get("from") != self.source:
            wrong.append(f"from is {record.data.get('from')!r}")
        if self.thread and record.data.get("thread") != self.thread:
            wrong.append(f"thread is {record.data.get('thread')!r}")
        return wrong

    def _of_the_chain(self, chain: list[dict[str, Any]]) -> list[str]:
        if not chain:
            return ["its chain is empty"]
        head = chain[0]
        wrong = _of_an_exception(head, self.type, self.message)
        if head.get("link"):
            wrong.append(f"its first exception has the link {head['link']!r}")
        if self.function and _innermost(head) != self.function:
            wrong.append(f"its innermost frame of the user's code is {_innermost(head)!r}")
        if self.in_library is not None and bool(head.get("library")) != self.in_library:
            wrong.append(f"library is {head.get('library')!r}")
        if self.links is not None:
            wrong += self._of_the_links(chain[1:])
        return wrong

    def _of_the_links(self, chain: list[dict[str, Any]]) -> list[str]:
        links = self.links or ()
        if [each.get("link") for each in chain] != [link for link, _, _ in links]:
            return [f"its links are {[each.get('link') for each in chain]}"]
        return [line for each, (_, kind, message) in zip(chain, links) for line in _of_an_exception(each, kind, message)]


Expected = Raised


def raised(type: str, message: str | None = None, **more: Any) -> Raised:
    return Raised(type, message, **more)


def _of_an_exception(found: Mapping[str, Any], kind: str, message: str | None) -> list[str]:
    wrong = []
    if str(found.get("type")).rpartition(".")[2] != kind:
        wrong.append(f"type is {found.get('type')!r}")
    if not _fits(found.get("message"), message):
        wrong.append(f"message is {str(found.get('message'))[:200]!r}")
    return wrong


def _fits(found: object, text: str | None) -> bool:
    if text is None:
        return True
    return isinstance(found, str) and (found.startswith(text[:-3]) if text.endswith("...") else found == text)


def _innermost(exception: Mapping[str, Any]) -> str:
    frames = exception.get("frames") or [{}]
    return str(frames[-1].get("function"))


# Programs


@dataclass(frozen=True)
class Program:
    """A program, and what one rank of it does.

    status: the exit code, or the name of the signal that ends it. records: all that the rank and its children leave.
    files: more files in its folder. since: the oldest Python that has what it uses. needs: modules that must be installed.
    same_output: False where two runs do not print the same.
    """

    name: str
    status: int | str
    records: Sequence[Expected]
    text: str
    files: Mapping[str, str] = field(default_factory=dict)
    since: tuple[int, int] = (3, 9)
    needs: tuple[str, ...] = ()
    same_output: bool = True

    def write(self, folder: Path, first: str = "") -> Path:
        """Write its files; return the script. first: a line in front of the program."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in self.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(textwrap.dedent(text).lstrip("\n"), encoding="utf-8")
        script = folder / "train.py"
        script.write_text(first + textwrap.dedent(self.text).lstrip("\n"), encoding="utf-8")
        return script


# Records


@dataclass(frozen=True)
class Record:
    """A file in a folder of records. by: the process that it is of: "rank", "child", "launcher", or "rank 0", the peer."""

    path: Path
    data: dict[str, Any]
    by: str = ""

    @property
    def _parts(self) -> dict[str, str]:
        match = NAME.fullmatch(self.path.name)
        return {name: value or "" for name, value in match.groupdict().items()} if match else {}

    @property
    def kind(self) -> str:
        return self._parts.get("kind", "")

    @property
    def node(self) -> int:
        return int(self._parts.get("node") or -1)

    @property
    def pid(self) -> int:
        return int(self._parts.get("pid") or -1)

    @property
    def process(self) -> tuple[int, int]:
        """Node and pid: on several hosts, two processes may have one pid."""
        return self.node, self.pid

    @property
    def n(self) -> int:
        return int(self._parts.get("n") or 0)

    def __str__(self) -> str:
        chain = self.data.get("chain") or self.data.get("handling") or []
        said = [f"{each.get('link') or ''} {each.get('type')}: {str(each.get('message'))[:200]!r}".strip() for each in chain]
        more = {name: self.data[name] for name in ("from", "thread", "code", "text", "name", "argv") if self.data.get(name)}
        return f"{self.path.name} ({self.by or 'nobody'}): {more} {said}"


def read_records(folder: Path) -> list[Record]:
    """All below a log folder, of all nodes and attempts."""
    paths = sorted(folder.rglob("records/node_*/*"))
    return [Record(path, json.loads(path.read_text(encoding="utf-8")) if path.suffix == ".json" else {}) for path in paths]


def of_kind(records: Iterable[Record], kind: str) -> list[Record]:
    return [record for record in records if record.kind == kind]


def wrong_files(records: Iterable[Record]) -> list[str]:
    """What must hold of every file, whatever the program."""
    wrong = []
    for record in records:
        size = record.path.stat().st_size
        if not NAME.fullmatch(record.path.name):
            wrong.append(f"{record.path.name} is no name of a record")
            continue
        if size > MOST_BYTES:
            wrong.append(f"{record.path.name} has {size} bytes")
        if record.data.get("record") != record.kind:
            wrong.append(f"{record.path.name} says that it is a record of the kind {record.data.get('record')!r}")
        if record.data.get("pid") != record.pid:
            wrong.append(f"{record.path.name} has the pid {record.data.get('pid')!r}")
        if record.path.parent.name != f"node_{record.node}":
            wrong.append(f"{record.path.name} lies in {record.path.parent.name}")
    return wrong


def wrong_numbers(records: Iterable[Record]) -> list[str]:
    """Exception records of a process are numbered from 1; of many, the first and the last remain."""
    numbers: dict[tuple[int, int], list[int]] = {}
    for record in of_kind(records, "exception"):
        numbers.setdefault(record.process, []).append(record.n)
    wrong = []
    for process, found in numbers.items():
        found.sort()
        whole = found == list(range(1, len(found) + 1))
        last = found[-1]
        cut = found == [*range(1, FIRST + 1), *range(last - LAST + 1, last + 1)]
        if not (whole and len(found) <= FIRST + LAST) and not cut:
            wrong.append(f"exception records of process {process} have the numbers {found}")
    return wrong


def wrong_records(expected: Sequence[Expected], records: Sequence[Record]) -> list[str]:
    """Compare exception and exit records, each of which has its `by`; name all that is missing, other or too much."""
    remaining = list(records)
    wrong = []
    for each in sorted(expected, key=lambda each: each.optional):
        for _ in range(each.times):
            fitting = next((record for record in remaining if not each.differences(record)), None)
            if fitting:
                remaining.remove(fitting)
            elif not each.optional:
                wrong.append(f"missing: {each}{_nearest(each, remaining)}")
    return wrong + [f"too much: {record}" for record in remaining]


def _nearest(expected: Expected, records: Sequence[Record]) -> str:
    if not records:
        return ""
    wrong, record = min(((expected.differences(record), record) for record in records), key=lambda pair: len(pair[0]))
    return f"; nearest is {record.path.name}: {'; '.join(wrong)}"
