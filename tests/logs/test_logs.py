"""`ranklaunch logs`: whose lines come in which order, of folders as jobs leave them, and of such that are lost, cut or hostile."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import helpers
import pytest
from hypothesis import HealthCheck, given, settings, strategies

from ranklaunch.logs import lines as log_lines
from ranklaunch.logs import merging, moments, reading, view
from ranklaunch.logs.merging import Node
from ranklaunch.logs.search import Folder
from ranklaunch.logs.shown import Look

DAY = 1_795_000_000_000_000  # microseconds since 1970

Said = Iterable[tuple[int, int, str]]  # (millisecond, rank, line)


def write(folder: Path, said: Said, node: int = 0, times: bool = True) -> Path:
    """As a supervisor leaves them."""
    folder.mkdir(parents=True, exist_ok=True)
    logs: dict[int, bytes] = {}
    told = ""
    for at, rank, line in said:
        told += "" if rank in logs else f"f {rank} rank_{rank}.log\n"
        logs[rank] = logs.get(rank, b"") + line.encode()
        told += f"{rank} {len(logs[rank])} {DAY + 1000 * at}\n"
    for rank, data in logs.items():
        (folder / f"rank_{rank}.log").write_bytes(data)
    if times:
        (folder / f"times_{node}").write_text(told)
    (folder / "verdict.json").touch()
    return folder


def lines(*words: object) -> list[str]:
    done = helpers.call("logs", *map(str, words))
    assert (done.code, done.err) == (0, "")
    return done.out.splitlines()


NODE_0 = [(1, 0, "a\n"), (3, 1, "c\n"), (5, 0, "e\nf\n"), (9, 1, "i\n")]
NODE_1 = [(2, 2, "b\n"), (4, 3, "d\n"), (6, 2, "g\n"), (7, 3, "h")]
MERGED = ["a", "b", "c", "d", "e", "f", "g", "i", "h"]  # the last line of rank 3 has no end until there is no more


def words(found: list[str]) -> list[str]:
    return [line.rpartition("] ")[2] for line in found]


def test_starts_that_have_written_nothing_are_passed_over(tmp_path: Path) -> None:
    write(tmp_path / "node_0" / "attempt_1", NODE_0)
    for folder in (tmp_path / "attempt_3", tmp_path / "node_1" / "attempt_2"):
        folder.mkdir(parents=True)
        (folder / "verdict.json").touch()
    assert words(lines(tmp_path)) == words(lines(tmp_path, "--attempt", 1)) != []
    assert lines(tmp_path, "--attempt", 2) == []


def test_all_ranks_of_all_nodes_in_the_order_of_time(tmp_path: Path) -> None:
    write(tmp_path / "node_0" / "attempt_1", NODE_0)
    write(tmp_path / "node_1" / "attempt_1", NODE_1, 1)
    found = lines(tmp_path)
    assert sorted(words(found)) == sorted(MERGED)
    assert words(found)[:6] == MERGED[:6]
    assert found[0] == "[node 0] [rank 0] a"
    assert words(lines(tmp_path, "--rank", "0,2-3")) == ["a", "b", "d", "e", "f", "g", "h"]
    assert words(lines(tmp_path, "--node", 1)) == ["b", "d", "g", "h"]
    assert lines(tmp_path, "--grep", "^[ag]$", "--times")[1] == "2026-11-18T11:06:40.006Z [node 1] [rank 2] g"
    assert words(lines(tmp_path, "--follow")) == words(found)  # it has ended
    assert lines(tmp_path / "node_0" / "attempt_1")[0] == "[rank 0] a"  # a folder of one alone


def test_the_newest_attempt_with_its_restarts_wherever_a_bucket_has_it(tmp_path: Path) -> None:
    top = tmp_path / "bucket" / "output" / "worker-0"
    write(top / "attempt_2", [(1, 0, "old\n")])
    write(top / "attempt_10", [(1, 0, "first\n")])
    write(top / "attempt_10" / "restart_2", [(3, 0, "third\n")])
    write(top / "attempt_10" / "restart_10", [(2, 0, "last, by a clock that was set back\n")])
    assert lines(tmp_path) == [
        "[rank 0] first", "[restart 2] [rank 0] third", "[restart 10] [rank 0] last, by a clock that was set back"
    ]  # fmt: skip
    assert lines(tmp_path, "--attempt", 2) == ["[rank 0] old"]
    write(tmp_path / "bucket" / "output" / "worker-1" / "attempt_10", [(2, 1, "other\n")], node=1)
    assert lines(tmp_path)[:2] == ["[node 0] [rank 0] first", "[node 1] [rank 1] other"]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--attempt", "3"], 78, "no attempt 3 of a job: there is 1"),
        (["--node", "4"], 78, "no node 4 in attempt 1"),
        (["--rank", "1-"], 2, "--rank 1-: expected numbers"),
        (["--grep", "("], 2, "--grep (: no regular expression"),
        (["--attempt", "x"], 2, "--attempt x: expected a whole number"),
        (["--tail", "-1"], 2, "--tail -1: expected a whole number"),
        (["--since", "25:00"], 2, "--since 25:00: expected a time of day (14:30), a date-time (2026-11-23T14:30) or an age (30s, 10m, 2h"),
        (["--until", "2026-02-30T10:00"], 2, "--until 2026-02-30T10:00: expected a time of day"),
        (["--since", "10y"], 2, "--since 10y: expected a time of day"),
        (["--since", "10m", "--until", "2h"], 2, "--since 10m: expected a time before --until 2h"),
        (["more"], 2, "2 folders"),
    ],
)
def test_what_is_asked_for_and_is_not_there(tmp_path: Path, words: list[str], code: int, says: str) -> None:
    write(tmp_path / "attempt_1", NODE_0)
    done = helpers.call("logs", str(tmp_path), *words)
    assert done.code == code
    assert says in done.err


# Some of the lines, by time


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--since", "11:06:40.004"], None),
        (["--since", "2026-11-18T11:06:40.004Z"], "defghi"),
        (["--since", "2026-11-18 12:06:40.004+01:00", "--until", "2026-11-18T11:06:40.006"], "defg"),
        (["--until", "2026-11-18T11:06:40.002"], "ab"),
        (["--since", "11:06:41"], ""),
        (["--since", "11:06", "--until", "11:07"], "abcdefghi"),
        (["--since", "23:59"], "abcdefghi"),  # of the day before, which is nearer
        (["--until", "0:00"], ""),
        (["--since", "2026-11-18", "--until", "2026-11-19"], "abcdefghi"),
        (["--since", "1s"], ""),
        (["--since", "99999d", "--until", "0s"], "abcdefghi"),
        (["--tail", "3"], "ghi"),
        (["--tail", "0"], ""),
        (["--tail", "99"], "abcdefghi"),
        (["--tail", "2", "--rank", "0-1"], "fi"),
        (["--tail", "2", "--grep", "[a-d]"], "cd"),
        (["--tail", "2", "--until", "2026-11-18T11:06:40.006"], "fg"),
        (["--tail", "2", "--since", "2026-11-18T11:06:40.007"], "hi"),
        (["--tail", "3", "--follow"], "ghi"),
    ],
)
def test_some_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], shown: str | None) -> None:
    """The same however many pieces are looked at first."""
    write(tmp_path / "node_0" / "attempt_1", NODE_0)
    write(tmp_path / "node_1" / "attempt_1", NODE_1, 1)
    for least in (1, 1000):
        monkeypatch.setattr(view, "LEAST_PIECES", least)
        done = helpers.call("logs", str(tmp_path), *words)
        if shown is None:
            assert (done.code, done.out) == (2, "")
            continue
        assert (done.code, done.err) == (0, "")
        assert "".join(line.rpartition("] ")[2] for line in done.out.splitlines()) == shown


@given(data=strategies.data())
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_the_last_lines_are_the_end_of_all_lines(tmp_path_factory: pytest.TempPathFactory, data: strategies.DataObject) -> None:
    """Of logs that are cut anywhere, with times that end too soon, over restarts and on two nodes."""
    top = tmp_path_factory.mktemp("logs")
    texts = strategies.sampled_from(["a\n", "b", "c\nd\n", "\n", "e\rf\n", "g\nh", "x" * 70_000, "y" * 70_000 + "\n"])
    said = strategies.lists(strategies.tuples(strategies.integers(1, 20), strategies.integers(0, 1), texts), max_size=12)
    for node in (0, 1):
        for folder in (f"node_{node}/attempt_1", f"node_{node}/attempt_1/restart_1"):
            parts = sorted((20 * ("restart" in folder) + at, 2 * node + rank, text) for at, rank, text in data.draw(said))
            times = write(top / folder, parts, node) / f"times_{node}"
            times.write_bytes(times.read_bytes()[: data.draw(strategies.integers(0, 400))])
    words = ("logs", str(top), "--times")
    whole = helpers.call(*words).out.splitlines()
    lines = data.draw(strategies.integers(1, 12))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(view, "LEAST_PIECES", 1)
        assert helpers.call(*words, "--tail", str(lines)).out.splitlines() == whole[-lines:]
    since = f"2026-11-18T11:06:40.{data.draw(strategies.integers(0, 41)):03}Z"
    assert helpers.call(*words, "--since", since).out.splitlines() == [line for line in whole if line[:24] >= since]
    assert helpers.call(*words, "--until", since).out.splitlines() == [line for line in whole if line[:24] <= since]


def test_of_the_last_lines_no_more_is_read_than_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By their times."""
    write(tmp_path / "attempt_1", [(i, i % 4, f"{i} {'x' * 1000}\n") for i in range(4000)])
    asked: list[int] = []
    read = reading.Files.read

    def counted(self: reading.Files, path: str, begin: int, end: int) -> bytes:
        data = read(self, path, begin, end)
        asked.append(len(data))
        return data

    monkeypatch.setattr(reading.Files, "read", counted)
    assert [line.split()[2] for line in lines(tmp_path, "--tail", 3)] == ["3997", "3998", "3999"]
    assert 0 < sum(asked) < 2_000_000
    asked.clear()
    assert len(lines(tmp_path, "--since", "2026-11-18T11:06:43.990Z")) == 10
    assert sum(asked) < 1_000_000
    asked.clear()
    assert len(lines(tmp_path, "--until", "2026-11-18T11:06:40.009Z")) == 10
    assert sum(asked) < 1_000_000


def test_a_line_that_began_before_a_moment_and_ended_after_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_lines, "NEAR", 4)
    monkeypatch.setattr(log_lines, "LONGEST_LINE", 64)
    parts = [(1, 0, "first\nbegun "), (2, 0, "and much longer "), (3, 0, "ended\n"), (4, 0, "z" * 100), (5, 0, "\nlast\n")]
    write(tmp_path / "attempt_1", parts)
    assert words(lines(tmp_path, "--since", "2026-11-18T11:06:40.003Z"))[0] == "begun and much longer ended"
    assert words(lines(tmp_path, "--since", "2026-11-18T11:06:40.005Z")) == ["z" * 36, "last"]  # a piece of it came before
    assert words(lines(tmp_path, "--until", "2026-11-18T11:06:40.002Z")) == ["first"]


@pytest.mark.parametrize(
    ("text", "first", "last", "expected"),
    [
        ("14:30", "2026-11-20T14:00", "2026-11-20T14:20", "2026-11-20T14:30"),
        ("13:30", "2026-11-20T14:00", "2026-11-20T14:20", "2026-11-20T13:30"),
        ("23:30", "2026-11-20T23:00", "2026-11-21T01:00", "2026-11-20T23:30"),
        ("0:30:15", "2026-11-20T23:00", "2026-11-21T01:00", "2026-11-21T00:30:15"),
        ("12:00", "2026-11-18T23:00", "2026-11-21T13:00", "2026-11-21T12:00"),  # of several the newest
        ("2026-11-20", "2026-11-20T23:00", "2026-11-21T01:00", "2026-11-20T00:00"),
        ("90s", "2026-11-20T23:00", "2026-11-21T01:00", "2026-11-30T11:58:30"),
    ],
)
def test_moments(text: str, first: str, last: str, expected: str) -> None:
    now = moments.moment("2026-11-30T12:00", 0.0)
    assert moments.moment(text, now, moments.moment(first, 0.0), moments.moment(last, 0.0)) == moments.moment(expected, 0.0)


def test_following_until_a_moment(tmp_path: Path) -> None:
    """A job that goes on is followed no longer, and shown from its last lines on."""
    folder = write(tmp_path / "attempt_1", [(1, 0, "a\n"), (2, 0, "b\n")])
    (folder / "verdict.json").unlink()
    assert words(lines(tmp_path, "--follow", "--tail", 1, "--until", "2026-11-18T11:06:40.002Z")) == ["b"]


def test_a_folder_without_logs(tmp_path: Path) -> None:
    assert "no such folder" in helpers.call("logs", str(tmp_path / "x")).err
    assert "no attempt of a job" in helpers.call("logs", str(tmp_path)).err


# Times that are lost, cut or hostile: every line is shown once all the same, in the order of its rank


@pytest.mark.parametrize(
    ("below", "words", "code", "shown"),
    [
        ("", (), 78, []),
        ("attempt_1", ("--attempt", "1"), 78, []),
        ("node_0/attempt_2", (), 0, ["b", "d", "g", "h"]),
        ("node_0", (), 0, ["b", "d", "g", "h"]),
    ],
)
def test_folders_that_may_not_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, below: str, words: Sequence[str], code: int, shown: list[str]
) -> None:
    write(tmp_path / "attempt_1", NODE_0)
    write(tmp_path / "node_0" / "attempt_2", NODE_0)
    write(tmp_path / "node_1" / "attempt_2", NODE_1, node=1)
    helpers.refuse(monkeypatch, tmp_path / below)
    done = helpers.call("logs", str(tmp_path), *words)
    assert (done.code, done.err) == (code, f"ranklaunch: {tmp_path / below}: Permission denied\n")
    assert [line.rpartition("] ")[2] for line in done.out.splitlines()] == shown


def test_lost_times(tmp_path: Path) -> None:
    folder = write(tmp_path / "attempt_1", NODE_0, times=False)
    os.utime(folder / "rank_0.log", (2000, 2000))
    os.utime(folder / "rank_1.log", (1000, 1000))
    done = helpers.call("logs", str(tmp_path))
    assert words(done.out.splitlines()) == ["c", "i", "a", "e", "f"]
    assert "its logs have no times" in done.err


def test_times_that_end_too_soon(tmp_path: Path) -> None:
    """The supervisor was killed."""
    folder = write(tmp_path / "attempt_1", NODE_0)
    told = (folder / "times_0").read_text()
    (folder / "times_0").write_text(told[: told.index("0 6 ") + 3])
    done = helpers.call("logs", str(tmp_path))
    assert sorted(words(done.out.splitlines())) == ["a", "c", "e", "f", "i"]
    assert words(done.out.splitlines())[:2] == ["a", "c"]
    assert "the last 6 bytes of its logs have no times" in done.err


@pytest.mark.parametrize("damage", [b"\0" * 5000, b"f 0 ../x.log\n0 999999999 1\n" * 100, b"0 1 2\n" * 100, b"9" * 100_000])
def test_hostile_times(tmp_path: Path, damage: bytes) -> None:
    folder = write(tmp_path / "attempt_1", NODE_0)
    told = (folder / "times_0").read_bytes()
    (folder / "times_0").write_bytes(damage + b"\n" + told + damage)
    done = helpers.call("logs", str(tmp_path))
    assert sorted(words(done.out.splitlines())) == ["a", "c", "e", "f", "i"]


def test_something_else_in_the_place_of_files(tmp_path: Path) -> None:
    folder = write(tmp_path / "attempt_1", NODE_0)
    (tmp_path / "secret").write_text("secret\n")
    for name in ("rank_1.log", "times_0"):
        (folder / name).unlink()
        (folder / name).symlink_to(tmp_path / "secret")
    os.mkfifo(folder / "rank_5.log")
    assert words(helpers.call("logs", str(tmp_path)).out.splitlines()) == ["a", "e", "f"]


def test_a_log_that_lost_its_end(tmp_path: Path) -> None:
    folder = write(tmp_path / "attempt_1", NODE_0)
    os.truncate(folder / "rank_0.log", 4)
    done = helpers.call("logs", str(tmp_path))
    assert words(done.out.splitlines()) == ["a", "c", "e", "i"]
    assert "rank_0.log: shorter than its times say" in done.err


def test_more_logs_than_descriptors(tmp_path: Path) -> None:
    ranks = 600
    write(tmp_path / "attempt_1", [(10 * turn + rank, rank, f"{turn}\n") for turn in range(2) for rank in range(ranks)])
    before = len(os.listdir("/proc/self/fd"))
    files = reading.Files(pytest.fail, most=20)
    for rank in range(ranks):
        files.read(str(tmp_path / "attempt_1" / f"rank_{rank}.log"), 0, 2)
        assert len(os.listdir("/proc/self/fd")) <= before + 21
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before + 40, hard))
    try:
        done = helpers.call("logs", str(tmp_path))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(done.out.splitlines()) == 2 * ranks


# Following


def test_following_ends_without_a_node_that_was_lost(tmp_path: Path) -> None:
    """Time is that of the looks."""
    said: list[str] = []
    nodes = [write(tmp_path / f"node_{i}" / "attempt_1", parts, i) for i, parts in enumerate((NODE_0, NODE_1))]
    (nodes[1] / "verdict.json").unlink()
    every = [Node(Folder(str(path), i, 1), merging.maker(lambda name: True, said.append, 2), True) for i, path in enumerate(nodes)]
    waited: list[float] = []
    pieces = [piece for piece in merging.followed(lambda: every, waited.append) if piece]
    assert merging.LOST_S <= sum(waited) < 2 * merging.LOST_S
    assert {piece.node for piece in pieces} == {0, 1}


def test_following_a_job_over_a_restart(tmp_path: Path) -> None:
    """What comes between two looks is put in order; what has no times comes all the same; it ends with the job."""
    said: list[str] = []
    nodes = [tmp_path / f"node_{i}" / "attempt_1" for i in range(2)]
    for i, folder in enumerate(nodes):
        write(folder, [(i, i, f"{i}\n")], i)
        (folder / "verdict.json").unlink()
    every = [Node(Folder(str(path), i, 1), merging.maker(lambda name: True, said.append, 2), True) for i, path in enumerate(nodes)]
    turns = iter(range(100))

    def grow(seconds: float) -> None:
        turn = next(turns)
        if turn == 1:
            write(nodes[1], [(1, 1, "1\n"), (20, 1, "later\n")], 1)
            (nodes[1] / "verdict.json").unlink()
        if turn == 2:
            write(nodes[0], [(0, 0, "0\n"), (19, 0, "sooner\n"), (25, 0, "no end")])
            (nodes[0] / "verdict.json").unlink()
        if turn == 3:
            write(nodes[0] / "restart_1", [(30, 0, "again\n")])
        if turn == 4:
            (nodes[0] / "verdict.json").touch()
            (nodes[1] / "verdict.json").touch()

    found = b""
    for piece in merging.followed(lambda: every, grow):
        if piece:
            log = piece.round.log(piece.part.name)
            found += b"".join(log.upto(piece.part.end)) + (log.last() if piece.whole else b"")
    assert found.decode().split("\n") == ["0", "1", "sooner", "later", "no end", "again", ""]
    assert next(turns) < 20


def test_following_from_the_last_lines_on(tmp_path: Path) -> None:
    said: list[str] = []
    folder = write(tmp_path, [(1, 0, "a\n"), (2, 0, "b\n"), (3, 0, "c\nd\n")])
    (folder / "verdict.json").unlink()
    make = merging.maker(lambda name: True, said.append, 1)

    def grow(seconds: float) -> None:
        write(folder, [(1, 0, "a\n"), (2, 0, "b\n"), (3, 0, "c\nd\n"), (4, 0, "e\n")])

    def pieces() -> Iterator[merging.Piece | None]:
        nodes = [Node(Folder(str(folder), 0, 1), make, True)]
        return merging.followed(lambda: nodes, grow)

    shown = list(view.View(Look()).tail(pieces, 1))
    assert shown[:2] == [b"[rank 0] d\n", b""]
    assert b"".join(shown[2:]) == b"[rank 0] e\n"


def test_times_may_be_behind_a_log_that_is_written_all_the_time(tmp_path: Path) -> None:
    """They count as long as they go on. What comes of them after their log was shown without is too late, and not wrong."""
    said: list[str] = []
    each = reading.Round(str(tmp_path), lambda name: True, reading.Files(said.append), said.append)
    lines = [(10 * i, 0, f"{i}\n") for i in range(60)]

    def look(log: int, times: int, now: float) -> tuple[int, int]:
        """Parts with a time, and without, of a log that has come as far as this, and its times as far as that."""
        write(tmp_path, lines[:log])
        ahead = (tmp_path / "rank_0.log").read_bytes()
        write(tmp_path, lines[:times])
        (tmp_path / "rank_0.log").write_bytes(ahead)
        return len(list(each.timed())), len(each.grown(now))

    assert [look(i + 2, i, i / 4) for i in range(1, 40)] == [(1, 0)] * 39
    assert [look(50, 39, now) for now in (10.0, 11.0, 12.5)] == [(0, 0), (0, 0), (0, 1)]
    assert look(50, 48, 13.0) == (0, 0)
    assert look(60, 59, 14.0) == (9, 0)
    each.rest()
    assert not any("true" in text for text in said)
