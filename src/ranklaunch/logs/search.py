"""Search for the log folders of a job, below its log folder, a copy, or a part of it."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

from ranklaunch.errors import ConfigError
from ranklaunch.verdict import folders

DEEPEST = 5  # folders between the named folder and an attempt; a bucket may add its own
MOST_FOLDERS = 200_000
_NODE = re.compile(r"node_([0-9]{1,7})")
_TIMES = re.compile(r"times_([0-9]{1,7})")
_RESTART = re.compile(r"restart_([0-9]{1,6})")
_LOG = re.compile(r"(?:rank_[0-9]+\.log|plan\.json|events\.jsonl)")


@dataclass(frozen=True)
class Folder:
    """Log folder of one node in an attempt. job: the part of its path with the job's id, "" for
    none."""

    path: str
    node: int
    attempt: int
    job: str = ""


def attempt(
    top: str, number: int | None = None, node: int | None = None, *, follow: bool = False, say: Callable[[str], object] = str
) -> list[Folder]:
    """Return the folders of one attempt, of all nodes or of one.

    number: None for the newest attempt. follow: the attempt may still run. say: reports unreadable
    folders. Raises ConfigError if no folder can be read.
    """
    if not os.path.isdir(top):
        msg = f"{top}: no such folder; LOG_DIR is the log folder of a job, or a copy of it"
        raise ConfigError(msg)
    unread: dict[str, str] = {}
    folders = _of_newest_job(list(_attempts(top, unread)))
    if unread and not folders:
        raise ConfigError(unread.values())
    of_attempt = _of_attempt(top, folders, number, follow=follow)
    wanted = [folder for folder in of_attempt if node is None or folder.node == node]
    if not wanted:
        raise ConfigError(_no_node(top, node, of_attempt))
    if all(folder.path in unread for folder in wanted):
        raise ConfigError(unread[folder.path] for folder in wanted)
    for why in unread.values():
        say(why)
    return sorted(wanted, key=attrgetter("node", "path"))


def _no_node(top: str, node: int | None, there: Sequence[Folder]) -> str:
    return f"{top}: no node {node} in attempt {there[0].attempt}: there are {', '.join(str(each.node) for each in there[:20])}"


def _of_attempt(top: str, folders: Sequence[Folder], number: int | None, *, follow: bool) -> list[Folder]:
    """Return the folders of one attempt, the newest without a number. Raise ConfigError if there is none."""
    numbers = sorted({folder.attempt for folder in folders})
    if not folders or (number is not None and number not in numbers):
        there = f"there {'are' if len(numbers) > 1 else 'is'} {', '.join(map(str, numbers))}"
        text = there if numbers else "it contains no folder attempt_1"
        msg = f"{top}: no attempt{'' if number is None else f' {number}'} of a job: {text}"
        raise ConfigError(msg)
    wanted = _newest(folders, numbers, follow=follow) if number is None else number
    return [folder for folder in folders if folder.attempt == wanted]


def _newest(folders: Sequence[Folder], numbers: Sequence[int], *, follow: bool) -> int:
    """Return the last attempt with a log, or with a plan if logs may still come. Failed starts have
    neither."""
    paths: dict[int, list[str]] = {}
    for folder in folders:
        paths.setdefault(folder.attempt, []).append(folder.path)
    return next((each for each in reversed(numbers) if any(_has_lines(path, follow=follow) for path in paths[each])), numbers[-1])


def _has_lines(path: str, *, follow: bool) -> bool:
    return any(name.endswith(".log") or _RESTART.fullmatch(name) or (follow and name == folders.PLAN) for name in names(path))


def rounds(path: str) -> list[tuple[int, str]]:
    """Return number and folder of each start of an attempt's ranks, in order: 0 for the first start,
    then the restarts."""
    numbers = sorted(int(match[1]) for match in map(_RESTART.fullmatch, names(path)) if match)
    return [(number, folders.restart(path, number)) for number in (0, *numbers)]


def times(path: str) -> list[str]:
    return sorted(os.path.join(path, name) for name in names(path) if _TIMES.fullmatch(name))


def names(folder: str, unread: dict[str, str] | None = None) -> list[str]:
    """Return the names in a folder. unread: gets the reason if it cannot be read."""
    try:
        return os.listdir(folder)
    except OSError as error:
        _note(unread, folder, error)
        return []


def _note(unread: dict[str, str] | None, folder: str, error: OSError) -> None:
    if unread is not None and error.errno != errno.ENOENT:  # removed during the search
        unread[folder] = f"{folder}: {error.strerror}"


def _attempts(top: str, unread: dict[str, str]) -> Iterator[Folder]:
    top = os.path.abspath(top)
    places: dict[str, int] = {}
    below = [_folder(path, places.setdefault(os.path.dirname(path), len(places)), unread) for path in _walked(top, unread)]
    if below or not any(map(_LOG.fullmatch, names(top))):
        yield from below
        return
    yield _folder(top, 0, unread)  # `top` is an attempt or a restart itself


def _walked(top: str, unread: dict[str, str]) -> Iterator[str]:
    """Yield the folders attempt_<k>. Links are not followed, because they may form a cycle, and
    attempts are not searched."""
    stack, visited = [(top, 0)], 0
    while stack and visited < MOST_FOLDERS:
        folder, depth = stack.pop()
        visited += 1
        if folders.attempts([os.path.basename(folder)]):
            yield folder
        elif depth <= DEEPEST:
            stack += [(path, depth + 1) for path in _inner(folder, unread)]


def _inner(folder: str, unread: dict[str, str]) -> Iterator[str]:
    try:
        with os.scandir(folder) as entries:
            paths = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError as error:
        _note(unread, folder, error)
        return
    yield from sorted(paths, reverse=True)


def _folder(path: str, place: int, unread: dict[str, str]) -> Folder:
    """Return the folder of an attempt. place: number of the node if neither the path nor a file has one."""
    *above, name = path.split("/")
    nodes = [*(int(match[1]) for match in map(_NODE.fullmatch, reversed(above)) if match), *_nodes_of_times(path, unread)]
    jobs = [word for word in above if word.startswith("job_")]
    return Folder(path, nodes[0] if nodes else place, next(iter(folders.attempts([name])), 1), jobs[-1] if jobs else "")


def _nodes_of_times(path: str, unread: dict[str, str]) -> Iterable[int]:
    return (int(match[1]) for match in map(_TIMES.fullmatch, names(path, unread)) if match)


def _of_newest_job(result: list[Folder]) -> list[Folder]:
    if len({folder.job for folder in result}) < 2:
        return result
    newest = max(result, key=_written_at).job
    return [folder for folder in result if folder.job == newest]


def _written_at(folder: Folder) -> float:
    """Return the time of the last event, in seconds since 1970; 0 without events."""
    try:
        return os.stat(os.path.join(folder.path, folders.EVENTS)).st_mtime
    except OSError:
        return 0.0
