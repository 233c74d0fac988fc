"""Waiting for SSH servers: real sockets on loopback that come late, say something else, refuse, or close at once."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from ranklaunch.supervise.waits import ssh_banners
from ranklaunch.supervise.waits.ssh_banners import Banners
from ranklaunch.system.loop import Loop
from testbench.waiting import DEADLINE_S, free_port

SSH = b"SSH-2.0-OpenSSH_9.2\r\n"
Serve = Callable[..., str]


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def serve() -> Iterator[Serve]:
    """A server on loopback that greets each who comes with the next of these words, the last one for ever. Its HOST:PORT."""
    with contextlib.ExitStack() as open_ones:

        def start(*greetings: bytes | None, port: int = 0, host: str = "127.0.0.1") -> str:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            server = open_ones.enter_context(socket.create_server((host, port), family=family))
            left, held = list(greetings), []

            def greet() -> None:
                with contextlib.suppress(OSError):
                    while True:
                        connection, _ = server.accept()
                        words = left.pop(0) if len(left) > 1 else left[0]
                        if words is None:
                            held.append(connection)
                            continue
                        with connection:
                            connection.sendall(words)

            thread = threading.Thread(target=greet)
            thread.start()
            # Called in reverse: what the thread accepts at the very end is closed too.
            open_ones.callback(lambda: [connection.close() for connection in held])
            open_ones.callback(thread.join, DEADLINE_S)
            open_ones.callback(server.shutdown, socket.SHUT_RDWR)
            return f"{'[::1]' if ':' in host else host}:{server.getsockname()[1]}"

        yield start


def wait(loop: Loop, condition: Callable[[], bool]) -> None:
    late: list[bool] = []
    timer = loop.after(DEADLINE_S, lambda: late.append(True))
    loop.run_until(lambda: bool(late) or condition())
    timer.cancel()
    assert not late


def test_servers_that_are_there(loop: Loop, serve: Serve) -> None:
    found = Banners([serve(SSH), serve(SSH), serve(SSH)], loop)
    wait(loop, lambda: not found.missing())
    found.close()


def test_the_port_of_a_question_does_not_keep_a_service_of_this_node_from_listening_there(loop: Loop, serve: Serve) -> None:
    """The kernel chooses from the range that the port of this node's sshd is in too. A connection of another process of this machine may
    have the same port, and refuse: one of ten is free of that."""
    assert any(_can_be_listened_on(_port_of_a_question(loop, serve(None))) for _ in range(10))


@contextlib.contextmanager
def _port_of_a_question(loop: Loop, server: str) -> Iterator[int]:
    asking = Banners([server], loop)
    wait(loop, lambda: any(sock.getsockname()[1] for sock in asking._open))
    (connection,) = asking._open
    try:
        yield connection.getsockname()[1]
    finally:
        asking.close()


def _can_be_listened_on(asking: contextlib.AbstractContextManager[int]) -> bool:
    with asking as port:
        try:
            socket.create_server(("0.0.0.0", port)).close()
        except OSError:
            return False
        return True


def test_a_server_that_comes_late(loop: Loop, serve: Serve) -> None:
    port = free_port()
    found = Banners([f"127.0.0.1:{port}"], loop)
    wait(loop, lambda: "refused" in found.missing())
    assert f"127.0.0.1:{port} (Connection refused)" in found.missing()
    serve(SSH, port=port)
    wait(loop, lambda: not found.missing())
    found.close()


@pytest.mark.parametrize(
    ("greeting", "why"),
    [(b"HTTP/1.0 400\r\n", "the server there is not an SSH server"), (b"", "the connection was closed")],
)
def test_a_server_of_another_kind_is_named_until_it_is_one(loop: Loop, serve: Serve, greeting: bytes, why: str) -> None:
    good, bad = serve(SSH), serve(greeting, greeting, SSH)
    found = Banners([good, bad], loop)
    wait(loop, lambda: found.missing() == f"{bad} ({why})")
    wait(loop, lambda: not found.missing())
    found.close()


def test_a_silent_server_is_not_waited_for_for_ever(loop: Loop, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh_banners, "ANSWER_S", 0.2)
    silent = serve(None, SSH)
    found = Banners([silent], loop)
    wait(loop, lambda: found.missing() == f"{silent} (no SSH banner)")
    wait(loop, lambda: not found.missing())
    found.close()


def test_a_name_that_does_not_resolve_is_named(loop: Loop) -> None:
    found = Banners(["nowhere.invalid:36666"], loop)
    wait(loop, lambda: "not asked yet" not in found.missing())
    assert found.missing().startswith("nowhere.invalid:36666 (")
    found.close()


def test_more_servers_than_are_asked_at_once(loop: Loop, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh_banners, "AT_ONCE", 2)
    found = Banners([serve(SSH) for _ in range(7)], loop)
    wait(loop, lambda: not found.missing())
    found.close()


def test_closed_while_it_asks(loop: Loop, serve: Serve) -> None:
    """Nothing is asked anew, and nothing is left open."""
    found = Banners([serve(None), f"127.0.0.1:{free_port()}"], loop)
    wait(loop, lambda: "refused" in found.missing())
    found.close()
    before = found.missing()
    passed: list[bool] = []
    loop.after(3 * ssh_banners.RETRY_S, lambda: passed.append(True))
    wait(loop, lambda: bool(passed))
    assert found.missing() == before
