"""Where the kernel's counts of out-of-memory kills are found, in made-up hierarchies."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ranklaunch.ends.collect import memory_kills
from ranklaunch.ends.model import DIES_S, MemoryKills
from ranklaunch.system import memory
from ranklaunch.system.loop import Loop
from ranklaunch.system.memory import LOOK_S, Kills, Memory

pytestmark = pytest.mark.processes

V1 = "5:devices:/docker/abc\n4:cpu,cpuacct:/docker/abc\n3:memory:/docker/abc\n1:name=systemd:/docker/abc\n"
V2 = "0::/system.slice/docker-abc.scope\n"
GIB = 1 << 30
UNLIMITED = "9223372036854771712"  # what v1 writes where there is no limit


def look(folder: Path, proc: str, files: dict[str, str]) -> Memory:
    (folder / "cgroup").write_text(proc)
    for name, text in files.items():
        path = folder / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return memory.look(str(folder / "cgroup"), str(folder))


def v1(place: str = "memory", kills: int = 1, peak: str = str(3 * GIB), limit: str = str(4 * GIB)) -> dict[str, str]:
    control = f"oom_kill_disable 0\nunder_oom 0\noom_kill {kills}\n"
    return {f"{place}/memory.oom_control": control, f"{place}/memory.max_usage_in_bytes": peak, f"{place}/memory.limit_in_bytes": limit}


def v2(place: str = ".", kills: int = 2, peak: str = str(GIB), limit: str = str(2 * GIB)) -> dict[str, str]:
    events = f"low 0\nhigh 7\nmax 40\noom 9\noom_kill {kills}\noom_group_kill 5\n"
    return {f"{place}/memory.events": events, f"{place}/memory.peak": f"{peak}\n", f"{place}/memory.max": f"{limit}\n"}


def test_v2_below_the_root(tmp_path: Path) -> None:
    others = v2(kills=50)
    assert look(tmp_path, V2, {**others, **v2("system.slice/docker-abc.scope")}) == Memory(2, GIB, 2 * GIB)


def test_v2_in_a_container_that_sees_itself_as_the_root(tmp_path: Path) -> None:
    assert look(tmp_path, "0::/\n", v2()) == Memory(2, GIB, 2 * GIB)


def test_v2_in_a_container_that_sees_the_hosts_name_of_it(tmp_path: Path) -> None:
    assert look(tmp_path, V2, v2()) == Memory(2, GIB, 2 * GIB)


def test_v1_below_the_root(tmp_path: Path) -> None:
    assert look(tmp_path, V1, {**v1(kills=50), **v1("memory/docker/abc")}) == Memory(1, 3 * GIB, 4 * GIB)


def test_v1_in_a_container(tmp_path: Path) -> None:
    assert look(tmp_path, V1, v1()) == Memory(1, 3 * GIB, 4 * GIB)


@pytest.mark.parametrize("controllers", ["memory", "cpu,memory", "memory,cpu", "cpu,memory,blkio"])
def test_v1_with_others_in_one_hierarchy(tmp_path: Path, controllers: str) -> None:
    assert look(tmp_path, f"7:{controllers}:/a\n", {**v1("memory/a"), **v1(kills=50)}).kills == 1


def test_hybrid_counts_in_v1(tmp_path: Path) -> None:
    """systemd's hybrid form: v2 has no controllers, and the line of it comes last."""
    files = {**v1("memory/docker/abc"), "unified/system.slice/docker-abc.scope/cgroup.events": "populated 1\n"}
    assert look(tmp_path, V1 + V2, files) == Memory(1, 3 * GIB, 4 * GIB)


def test_a_name_that_only_has_memory_in_it_is_another_controller(tmp_path: Path) -> None:
    assert look(tmp_path, "7:memoryless:/a\n", v1("memory/a")) == memory.UNKNOWN


@pytest.mark.parametrize(
    "proc", ["", "0::/x\n", V1, V1 + V2, "garbage", "\0\0", "::::\n0::\n", "0::/../../..\n", "3:memory:/" + "x" * 5000]
)
def test_none(tmp_path: Path, proc: str) -> None:
    assert look(tmp_path, proc, {}) == memory.UNKNOWN


def test_no_proc(tmp_path: Path) -> None:
    assert memory.look(str(tmp_path / "nothing"), str(tmp_path)) == memory.UNKNOWN


def test_without_a_limit(tmp_path: Path) -> None:
    found = look(tmp_path / "", "0::/\n", v2(limit="max"))
    assert found == Memory(2, GIB, 0)
    assert memory_kills(found).described == " (2 killed)"


def test_without_a_limit_in_v1(tmp_path: Path) -> None:
    assert look(tmp_path, V1, v1(limit=UNLIMITED)).limit == 0


def test_described() -> None:
    assert MemoryKills(1, 3 * GIB, 4 * GIB).described == " (1 killed; at most 3.00 GiB in use of 4.00 GiB allowed)"


def test_a_peak_that_the_kernel_does_not_tell_is_not_told(tmp_path: Path) -> None:
    files = v2()
    del files["./memory.peak"]
    found = look(tmp_path, "0::/\n", files)
    assert found == Memory(2, 0, 2 * GIB)
    assert "0.00" not in memory_kills(found).described


def test_since() -> None:
    assert Memory(5, 3, 4).since(Memory(2)).kills == 3
    assert Memory(0, 3, 4).since(Memory(2)).kills == 0  # another group by now


def test_kills_are_known_by_when_they_were_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    loop = Loop(lambda: now)
    counts = iter([3, 3, 4, 4, 6, 7, 7])  # at the start, at each look, at the end
    monkeypatch.setattr(memory, "look", lambda: Memory(next(counts)))
    kills = Kills(loop)
    for _ in range(5):
        now += LOOK_S
        loop.step(0)
    found = kills.since(lambda at: 1000 + at)
    assert (found.kills, found.seen) == (4, ((1000 + 2 * LOOK_S, 1), (1000 + 4 * LOOK_S, 3), (1000 + 5 * LOOK_S, 4)))
    second = 1000 + 2 * LOOK_S
    assert [
        memory_kills(found).lately(at) for at in (second, second + DIES_S + 0.1, second + 2 * LOOK_S + DIES_S + 0.1, second + 1000)
    ] == [4, 3, 1, 0]


@pytest.mark.parametrize(
    "text", ["", "oom_kill\n", "oom_kill x\n", "oom_kill -1\n", " oom_kill 3\n", "xoom_kill 3\n", "oom_kill 3 4\n", "\xff\n"]
)
def test_counts_that_are_none(tmp_path: Path, text: str) -> None:
    assert look(tmp_path, "0::/\n", {**v2(), "memory.events": text}) == memory.UNKNOWN


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "1 2", "max\n", "\0", "0x10"])
def test_numbers_that_are_none(tmp_path: Path, text: str) -> None:
    assert look(tmp_path, "0::/\n", {**v2(), "memory.max": text, "memory.peak": text}) == Memory(2, 0, 0)


def test_a_number_that_only_looks_like_one(tmp_path: Path) -> None:
    assert look(tmp_path, "0::/\n", {**v2(), "memory.max": "²"}).kills == 2


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.characters(max_codepoint=127), max_size=60), st.text(st.characters(max_codepoint=127), max_size=60))
def test_garbage_is_no_error(tmp_path: Path, proc: str, text: str) -> None:
    found = look(tmp_path, proc, {"memory.events": text, "memory.max": text, "memory.peak": text, "memory/memory.oom_control": text})
    assert found.kills >= 0
    assert memory_kills(found).described
