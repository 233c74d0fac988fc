"""Names are looked up side by side, by as many threads as are allowed, and what comes too late is lost."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from ranklaunch.system import lookup
from ranklaunch.system.loop import Loop

pytestmark = pytest.mark.processes


def test_more_names_than_are_asked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each thread takes one after the other; who closes it meanwhile hears of none that comes later."""
    running, most = [0], [0]
    lock = threading.Lock()

    def slow(host: str, port: int) -> tuple[list[lookup.Address], str]:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0.01)
        with lock:
            running[0] -= 1
        return [lookup.Address(socket.AF_INET, (f"10.0.0.{host[1:]}", port))], ""

    monkeypatch.setattr(lookup, "resolve", slow)
    loop = Loop()
    found: list[str] = []
    lookups = lookup.Lookups(loop, 4)
    for i in range(40):
        lookups.ask(f"h{i}", 1, lambda addresses, why: found.append(addresses[0].sockaddr[0]))
    timer = loop.after(60, lambda: pytest.fail("waited 60 s in vain"))
    loop.run_until(lambda: len(found) == 40)
    assert sorted(found) == sorted(f"10.0.0.{i}" for i in range(40))
    assert most[0] == 4
    for i in range(8):
        lookups.ask(f"h{i}", 1, lambda addresses, why: found.append("late"))
    lookups.close()
    timer.cancel()
    loop.after(0.2, lambda: found.append("end"))
    loop.run_until(lambda: "end" in found)
    assert "late" not in found


def test_a_name_for_which_there_is_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        msg = "can't start new thread"
        raise RuntimeError(msg)

    monkeypatch.setattr(threading.Thread, "start", start)
    loop = Loop()
    said: list[object] = []
    lookup.look_up("h0", 1, loop, lambda addresses, why: said.append((addresses, why)))
    loop.run_until(lambda: bool(said))
    assert said == [([], "its name cannot be looked up (can't start new thread)")]
