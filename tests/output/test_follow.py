"""Files that a launcher lets its ranks write: each line once, in turns, and whatever else is in the folder."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ranklaunch.output import follow, pipe
from ranklaunch.output.follow import Follower
from ranklaunch.output.pipe import READ, TAIL, Output
from ranklaunch.system.loop import Loop

PATTERN = r".*/([0-9]+)/std(?:out|err)\.log"


class Bench:
    """A follower of ranks 0 and 1 below a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.loop = Loop()
        self.shown = bytearray()
        self.trouble: list[str] = []
        self.outputs = {key: self._output(key) for key in ("0", "1")}
        self.follower = Follower(str(folder), PATTERN, self.outputs, self.loop, self.trouble.append)

    def _output(self, key: str) -> Output:
        log = str(self.folder.parent / f"rank_{key}.log")
        return Output(
            (log,),
            f"[{key}] ",
            lambda *lines: self.shown.extend(b"".join(lines)),
            self.loop.clock,
            self.trouble.append,
            after=self.loop.after,
        )

    def log(self, key: str) -> bytes:
        return (self.folder.parent / f"rank_{key}.log").read_bytes()

    def run(self, done: Callable[[], bool], seconds: float = 20) -> None:
        self.loop.run_until(done, self.loop.clock() + seconds)
        assert done()

    def end(self) -> int:
        self.follower.catch_up()
        self.run(lambda: self.follower.idle)
        return self.follower.finish()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for rank in ("0", "1"):
        (tmp_path / "followed" / "run" / rank).mkdir(parents=True)
    return tmp_path / "followed"


@pytest.fixture(params=["inotify", "looking"])
def bench(request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    if request.param == "looking":
        monkeypatch.setattr(follow, "Inotify", NoInotify)
    return Bench(folder)


class NoInotify(follow.Inotify):
    def __init__(self) -> None:
        super().__init__()
        self.close()
        self.fd = -1


def test_a_progress_bar_that_stops_is_shown(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last state has no end yet, so it is not taken from the file."""
    monkeypatch.setattr(pipe, "BAR_S", 0.05)
    (bench.folder / "run" / "0" / "stderr.log").write_bytes(b"\r10%\r20%\r30%")
    bench.run(lambda: b"[0] 30%\n" in bench.shown)
    with open(bench.folder / "run" / "0" / "stderr.log", "ab") as file:
        file.write(b"\r40%\n")
    bench.run(lambda: b"[0] 40%\n" in bench.shown)
    assert bench.end() == 0
    assert bench.shown.count(b"[0] 30%\n") == 1


def test_every_line_once(bench: Bench) -> None:
    """Of two streams, whose blocks do not meet within a line."""
    out, err = (b"".join(b"%s line %d\n" % (name, index) for index in range(60_000)) for name in (b"out", b"err"))
    (bench.folder / "run" / "0" / "stdout.log").write_bytes(out)
    (bench.folder / "run" / "0" / "stderr.log").write_bytes(err + b"no end")
    bench.run(lambda: len(bench.shown) >= len(out) + len(err))
    assert bench.end() == 0
    lines = bytes(bench.shown).splitlines(keepends=True)
    assert b"".join(line[4:] for line in lines if line.startswith(b"[0] out")) == out
    assert b"".join(line[4:] for line in lines if not line.startswith(b"[0] out")) == err + b"no end\n"
    assert len(bench.log("0")) == len(out) + len(err) + len(b"no end")


def test_a_line_longer_than_a_block(bench: Bench) -> None:
    long = b"x" * (2 * READ + 5) + b"\n"
    (bench.folder / "run" / "1" / "stdout.log").write_bytes(b"a\n" + long + b"b\n")
    bench.run(lambda: bench.shown.endswith(b"b\n"))
    bench.end()
    assert bench.log("1") == b"a\n" + long + b"b\n"
    assert bytes(bench.shown) == b"[1] a\n[1] " + long + b"[1] b\n"


def test_others_have_their_turn(bench: Bench) -> None:
    """However much is in a file: a turn of the loop is short."""
    (bench.folder / "run" / "0" / "stdout.log").write_bytes(b"10%\r20%\n" * (1024 * 1024))
    longest, before = 0.0, time.process_time()
    while len(bench.shown) < 5 * 1024 * 1024:
        bench.loop.step(1.0)
        now = time.process_time()
        longest, before = max(longest, now - before), now
    assert longest < 0.5


def test_what_is_left_is_stored_when_there_is_no_time(bench: Bench) -> None:
    data = b"line\n" * 400_000
    (bench.folder / "run" / "0" / "stdout.log").write_bytes(data)
    bench.follower.catch_up()
    unshown = bench.follower.finish()
    assert bench.log("0") == data
    assert unshown == 400_000 - bench.shown.count(b"\n")
    assert unshown > 0


@pytest.mark.parametrize("stage", ["before", "after"])
def test_what_is_no_file_is_not_read(folder: Path, stage: str, tmp_path: Path) -> None:
    bench = Bench(folder) if stage == "after" else None
    run = folder / "run"
    (run / "round").symlink_to(".")
    (run / "again").symlink_to(".")
    (folder / "up").symlink_to("..")
    (run / "nothing").symlink_to("gone")
    os.mkfifo(run / "0" / "stdout.log")
    (run / "0" / "stderr.log").symlink_to("/dev/zero")
    bench = bench or Bench(folder)
    (run / "1" / "stdout.log").write_text("a line\n")
    bench.run(lambda: bytes(bench.shown) == b"[1] a line\n")
    bench.end()
    assert bytes(bench.shown) == b"[1] a line\n"
    assert sorted(bench.trouble) == [
        f"{run}/0/stderr.log is a link, not a file that a rank writes: it is not read",
        f"{run}/0/stdout.log is a FIFO, not a file that a rank writes: it is not read",
    ]


@pytest.mark.parametrize("lost", ["removed", "moved", "moved, with a link", "moved, with another in its place"])
def test_a_file_whose_path_is_gone_is_read_on(bench: Bench, folder: Path, lost: str, tmp_path: Path) -> None:
    path = folder / "run" / "0" / "stdout.log"
    with path.open("ab", buffering=0) as rank:
        rank.write(b"step 1\n")
        bench.run(lambda: b"step 1\n" in bench.shown)
        if lost == "removed":
            shutil.rmtree(folder)
        else:
            folder.rename(tmp_path / "elsewhere")
        if lost == "moved, with a link":
            folder.symlink_to(tmp_path / "elsewhere")
        elif lost == "moved, with another in its place":
            (folder / "run" / "0").mkdir(parents=True)
        rank.write(b"step 2\n")
        bench.run(lambda: b"step 2\n" in bench.shown)
        rank.write(b"ValueError: loss is nan")
        assert bench.follower.end_of("0")[1].endswith(b"step 2\nValueError: loss is nan")
        rank.write(b"\nsaved\n")
    assert bench.end() == 0
    assert bytes(bench.shown) == b"[0] step 1\n[0] step 2\n[0] ValueError: loss is nan\n[0] saved\n"
    said = [] if lost == "moved, with a link" else [f"{path} was removed or moved while its rank writes to it: its lines are still shown"]
    assert bench.trouble == said


def test_files_that_copy_themselves(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is shown comes back into the file that is followed: it ends, is said, and the last lines are still known."""
    monkeypatch.setattr(follow, "_budget", lambda folder: 4 * 1024 * 1024)
    bench = Bench(folder)
    path = folder / "run" / "0" / "stdout.log"

    def echo(*lines: bytes) -> None:
        with path.open("ab") as file:
            file.writelines((*lines, *lines))

    bench.outputs["0"]._show_lines = echo
    path.write_text("line\n")
    bench.run(lambda: bool(bench.trouble))
    size = path.stat().st_size
    bench.loop.run_until(lambda: False, bench.loop.clock() + 1)
    assert path.stat().st_size == size < 16 * 1024 * 1024
    assert len(bench.log("0")) < 5 * 1024 * 1024
    with path.open("a") as file:
        file.write("Error: the cause\n")
    assert bench.follower.tail_of("0").decode().splitlines()[-1] == "Error: the cause"
    bench.end()
    assert len(bench.trouble) == 1


@pytest.mark.parametrize(
    ("free", "copied"),
    [(0, 16 << 20), (100 << 20, 25 << 20), (2 << 30, 512 << 20), (40 << 30, 10 << 30), (1 << 40, 16 << 30), (None, 1 << 30)],
)
def test_how_much_is_copied_follows_from_what_the_disk_has_free(
    free: int | None, copied: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quarter, at most 16 GiB, at least 16 MiB; 1 GiB where the disk does not tell."""
    size, blocks, available = 1 << 12, 0 if free is None else 1 << 30, (free or 0) >> 12
    disk = os.statvfs_result((size, size, blocks, available, available, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: disk)
    assert follow._budget(str(tmp_path)) == copied


def test_how_much_is_copied_where_the_disk_cannot_be_asked(tmp_path: Path) -> None:
    assert follow._budget(str(tmp_path / "gone")) == 1 << 30


def test_what_ranks_of_an_earlier_round_wrote_is_not_why_they_ended(bench: Bench, folder: Path) -> None:
    """torchrun --max_restarts. The log has all of it."""
    (folder / "run" / "0" / "stdout.log").write_bytes(b"first\n")
    bench.run(lambda: bench.log("0") == b"first\n")
    (folder / "next" / "0").mkdir(parents=True)
    for name in ("stdout", "stderr"):
        (folder / "next" / "0" / f"{name}.log").write_bytes(b"%s\n" % name.encode())
    bench.run(lambda: bench.log("0").count(b"\n") == 3)
    assert sorted(bench.follower.tail_of("0").split()) == [b"stderr", b"stdout"]
    bench.end()


@pytest.mark.parametrize("copied", ["all", "some", "nothing", "too much"])
def test_what_a_rank_wrote_last_is_its_end(bench: Bench, copied: str) -> None:
    """Of two files, and however much of them has been copied by then."""
    folder, output = bench.folder / "run" / "1", bench.outputs["1"]
    (folder / "stderr.log").write_bytes(b"a warning\n")
    if copied != "nothing":
        bench.run(lambda: output.tail == b"a warning\n")
    if copied == "too much":
        bench.follower._spend(bench.follower._left)
    (folder / "stdout.log").write_bytes(b"step 1\nstep 2\n")
    if copied == "all":
        bench.run(lambda: output.tail.endswith(b"step 2\n"))
    with open(folder / "stderr.log", "ab") as stderr:
        stderr.write(b"ValueError: loss is nan\nAbort")
    os.utime(folder / "stdout.log", (1000, 1000))
    os.utime(folder / "stderr.log", (1001, 1001))
    place, said = bench.follower.end_of("1")
    assert place == "run"
    steps_last = b"a warning\nstep 1\nstep 2\n" if copied in ("all", "some") else b"step 1\nstep 2\na warning\n"
    assert said == steps_last + b"ValueError: loss is nan\nAbort"
    assert bench.follower.is_newest("1", place)


@pytest.mark.parametrize("begun", [b"batch 17 ... ", b"x" * 60_000])
@pytest.mark.parametrize("later_s", [-0.05, 0.05, 1])
def test_an_exception_stands_behind_a_line_that_has_only_begun(bench: Bench, begun: bytes, later_s: float) -> None:
    """Unless that was written clearly later."""
    folder, output = bench.folder / "run" / "1", bench.outputs["1"]
    (folder / "stdout.log").write_bytes(b"step 1\n" + begun)
    bench.run(lambda: output.tail == b"step 1\n")
    (folder / "stderr.log").write_bytes(b"ValueError: loss is nan\n")
    os.utime(folder / "stderr.log", (1000, 1000))
    os.utime(folder / "stdout.log", (1000 + later_s, 1000 + later_s))
    bench.run(lambda: output.tail.endswith(b"nan\n"))
    error = b"ValueError: loss is nan\n"
    expected = (b"step 1\n" + error + begun if later_s == 1 else b"step 1\n" + begun + b"\n" + error)[-TAIL:]
    assert bench.follower.end_of("1")[1] == expected
    bench.end()
    assert bench.follower.tail_of("1") == expected
    assert bench.log("1") == b"step 1\n" + error + begun


def test_what_was_written_first_is_read_first(bench: Bench) -> None:
    """Also where a look finds both at once."""
    folder = bench.folder / "run" / "1"
    (folder / "stdout.log").write_bytes(b"step 7\n")
    (folder / "stderr.log").write_bytes(b"ValueError: loss is nan\n")
    os.utime(folder / "stdout.log", (1000, 1000))
    os.utime(folder / "stderr.log", (1000, 1000))
    assert bench.end() == 0
    assert bench.follower.tail_of("1") == bench.log("1") == b"step 7\nValueError: loss is nan\n"


@pytest.mark.parametrize("seconds", [0, 1])
def test_a_long_output_does_not_push_the_exception_behind_it_away(bench: Bench, seconds: int) -> None:
    """Whichever file is noticed first."""
    folder, steps, error = bench.folder / "run" / "1", b"layer.1.weight: 768\n" * 100_000, b"ValueError: loss is nan\n"
    (folder / "stderr.log").write_bytes(error)
    (folder / "stdout.log").write_bytes(steps)
    os.utime(folder / "stdout.log", (1000, 1000))
    os.utime(folder / "stderr.log", (1000 + seconds, 1000 + seconds))
    bench.run(lambda: bench.follower.idle and len(bench.log("1")) == len(steps + error))
    assert bench.follower.end_of("1")[1].endswith(b"768\n" + error)
    bench.end()
    assert bench.log("1") == steps + error


def test_what_is_left_is_stored_in_its_order(bench: Bench) -> None:
    """Standard output comes last where it was written to clearly later."""
    folder, steps, error = bench.folder / "run" / "1", b"layer.1.weight: 768\n" * 100_000, b"a warning\n" * 60_000
    bench.follower.pause(True)
    (folder / "stdout.log").write_bytes(steps)
    (folder / "stderr.log").write_bytes(error)
    os.utime(folder / "stderr.log", (1000, 1000))
    os.utime(folder / "stdout.log", (1001, 1001))
    bench.follower.catch_up()
    bench.follower.finish()
    assert bench.log("1") == error + steps


@pytest.mark.parametrize("late", ["stdout.log", "stderr.log"])
def test_a_file_that_is_always_ahead_holds_the_other_back_for_a_while_only(bench: Bench, late: str) -> None:
    """However fast it is written to."""
    folder = bench.folder / "run" / "1"
    flood = folder / ("stderr.log" if late == "stdout.log" else "stdout.log")
    flood.write_bytes(b"x\n" * READ)
    (folder / late).write_bytes(b"Error: the cause\n")
    os.utime(folder / late, (1 << 32, 1 << 32))

    def shown() -> bool:
        with flood.open("ab") as file:
            file.write(b"x\n" * READ)
        return b"the cause" in bench.shown

    bench.run(shown)
    bench.end()
