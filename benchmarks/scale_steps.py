"""What benchmarks/scale.py measures, each in a process of its own: `scale_steps.py STEP NUMBER [PORT]` prints what it found as JSON.

A step that others wait for prints "ready" before, and those that begin together read a line first.
"""

from __future__ import annotations

import heapq
import json
import os
import resource
import selectors
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import processes
from ranklaunch import ranktable
from ranklaunch.env.job import Program
from ranklaunch.files import NoFiles
from ranklaunch.muster import wire
from ranklaunch.muster.driver import Calls, HubDriver, MemberDriver
from ranklaunch.plan.model import Muster, Wait
from ranklaunch.plan.planning import Request, make_plan
from ranklaunch.ranktable import make
from ranklaunch.supervise.waits import waiting
from ranklaunch.supervise.waits.ssh_banners import Banners
from ranklaunch.system.loop import Loop

DEVICES = 8
HOST_FILE = "/etc/volcano/worker.host"
ANSWER_S = 0.02  # what a name server or an SSH server takes to answer
TIMEOUT_S = 300.0
KEY = wire.job_key(b"a secret", "job")
HUB = "127.0.0.1"
FACTS = {"method": "torchrun", "nodes": "n", "program": "sha256:0123456789abcdef", "torch": "2.6.0"}

Found = dict[str, Any]


# Plans


class OneFile(NoFiles):
    """A view of files with one in it and nothing else."""

    def __init__(self, path: str, text: str) -> None:
        self._path, self._text = path, text

    def text(self, path: str, limit: int) -> str | None:
        return self._text if path == self._path else None

    def exists(self, path: str) -> bool:
        return path == self._path


def table(ranks: int) -> str:
    servers = ranks // DEVICES
    ips = make.addresses("29.0.0.0/8", ranks)
    devices = [[(str(device), next(ips)) for device in range(DEVICES)] for _ in range(servers)]
    return make.text_of(make.make(tuple(make.addresses("10.0.0.0/8", servers)), devices), "1.0")


def names(ranks: int) -> list[str]:
    return [f"job-worker-{node}.job" for node in range(ranks // DEVICES)]


def platform(ranks: int) -> dict[str, str]:
    nodes = ranks // DEVICES
    return {"MA_NUM_HOSTS": str(nodes), "MA_NUM_GPUS": str(DEVICES), "MA_VJ_NAME": "job", "VC_TASK_INDEX": str(nodes // 2)}


def from_table(ranks: int) -> Callable[[], object]:
    path = ranktable.DEFAULT_PATHS[0]
    request = Request(
        Program("train.py"), {**platform(ranks), "RANK_TABLE_FILE": path}, OneFile(path, _text(ranks)), {"method": "ranktable"}
    )
    return lambda: make_plan(request)


def from_worker_hosts(ranks: int) -> Callable[[], object]:
    env = {**platform(ranks), "VC_WORKER_HOSTS": ",".join(names(ranks))}
    return lambda: make_plan(Request(Program("train.py"), env, NoFiles(), {"method": "torchrun"}))


def from_host_file(ranks: int) -> Callable[[], object]:
    files = OneFile(HOST_FILE, "\n".join(names(ranks)) + "\n")
    return lambda: make_plan(Request(Program("train.py"), platform(ranks), files, {"method": "torchrun"}))


def loads(ranks: int) -> Callable[[], object]:
    text = _text(ranks)
    return lambda: json.loads(text)


def _text(ranks: int) -> str:
    """Made by another process, so that this one has needed no memory for it."""
    with subprocess.Popen([sys.executable, __file__, "table", str(ranks)], stdout=subprocess.PIPE, text=True) as maker:
        assert maker.stdout
        return maker.stdout.read()


def once(made: Callable[[int], Callable[[], object]]) -> Callable[[int], Found]:
    """A small one before it: what Python imports at its first use is no matter of size."""

    def measure(ranks: int) -> Found:
        made(DEVICES)()
        act = made(ranks)
        Path("/proc/self/clear_refs").write_text("5")  # the peak is now what there is now
        before, cpu, began = processes.peak_kb(os.getpid()), time.process_time(), time.perf_counter()
        kept = act()
        seconds, cpu_s = time.perf_counter() - began, time.process_time() - cpu
        assert kept
        peak = processes.peak_kb(os.getpid())
        return {"s": seconds, "CPU s": cpu_s, "peak MB": peak / 1024, "of it for this MB": (peak - before) / 1024}

    return measure


# Muster


def _muster(node: int, nodes: int, port: int) -> Muster:
    """As addresses, so that no name is looked up; the hub asks for none of those that are not there."""
    hosts = (HUB, *(f"127.{1 + i // 62500}.{i // 250 % 250}.{i % 250 + 1}" for i in range(1, nodes)))
    return Muster(node=node, hosts=hosts, port=port, timeout_s=TIMEOUT_S, lost_after_s=60.0, end_timeout_s=TIMEOUT_S)


def hub(nodes: int, port: int) -> Found:
    """Node 0: the hub, and the member that every node has, as muster/nodes.py joins them."""
    loop = Loop()
    released: list[float] = []
    made = HubDriver(_muster(0, nodes, port), KEY, loop, _say, 1.0, "all succeeded")
    member = MemberDriver(_muster(0, nodes, port), KEY, loop, _say, _calls(lambda: released.append(time.monotonic())), hub=made)
    if made.door.trouble:
        raise RuntimeError(made.door.trouble)
    member.start()
    member.ready(FACTS, 0, HUB)
    _ready()
    before = time.process_time()
    gone: list[bool] = []
    loop.on_readable(0, lambda: gone.append(True))  # until the members have been released too
    loop.run_until(lambda: bool(gone))
    cpu_s = time.process_time() - before
    return {"released": released[0], "CPU s": cpu_s, "peak MB": processes.peak_kb(os.getpid()) / 1024}


def members(nodes: int, port: int, part: int, parts: int) -> Found:
    """Those of some nodes, in one process: real ones."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    loop = Loop()
    released: list[float] = []
    made = []
    base = _muster(0, nodes, port)
    for node in range(1 + part, nodes, parts):
        muster = Muster(node, base.hosts, port, base.timeout_s, base.lost_after_s, base.end_timeout_s)
        made.append(MemberDriver(muster, KEY, loop, _say, _calls(lambda: released.append(time.monotonic()))))
    _ready()
    began = time.monotonic()
    for node, member in zip(range(1 + part, nodes, parts), made):
        member.start()
        member.ready(FACTS, node, base.hosts[node])
    loop.run_until(lambda: len(released) == len(made))
    _found({"began": began, "released": max(released), "CPU s": time.process_time()})
    sys.stdin.readline()  # until node 0 has been asked too
    return {}


def _calls(released: Callable[[], object]) -> Calls:
    def unexpected(*what: object) -> None:
        msg = f"the job ended: {what}"
        raise RuntimeError(msg)

    return Calls(lambda text: released(), unexpected, unexpected, unexpected, unexpected)


# Names and banners


def name_server(_: int) -> Found:
    """Gives every name an IPv4 address and no other, each answer after a time of its own."""
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    server.bind(("127.0.0.1", 53))
    _ready()
    due: list[tuple[float, int, bytes, Any]] = []
    count = 0
    while True:
        server.settimeout(max(0.0001, due[0][0] - time.monotonic()) if due else None)
        try:
            query, address = server.recvfrom(4096)
            count += 1
            heapq.heappush(due, (time.monotonic() + ANSWER_S, count, _answer(query), address))
        except (TimeoutError, socket.timeout, BlockingIOError):
            pass
        while due and due[0][0] <= time.monotonic():
            server.sendto(due[0][2], heapq.heappop(due)[3])


def _answer(query: bytes) -> bytes:
    """RFC 1035, section 4: the question again and, where it asks for an IPv4 address, one."""
    end = query.index(b"\0", 12) + 5
    asked = struct.unpack_from("!H", query, end - 4)[0]
    found = b"\xc0\x0c" + struct.pack("!HHIH4s", 1, 1, 60, 4, socket.inet_aton("10.9.8.7")) if asked == 1 else b""
    return query[:2] + struct.pack("!HHHHH", 0x8580, 1, 1 if found else 0, 0, 0) + query[12:end] + found


def resolve(count: int) -> Found:
    """The first answer takes what this process needs once, so another one comes before."""
    _wait("hosts", lambda loop: waiting.HostsResolve(["first.job"], loop))
    one = min(_wait("hosts", lambda loop, n=n: waiting.HostsResolve([f"one{n}.job"], loop)) for n in range(5))  # type: ignore[misc]
    every = _wait("hosts", lambda loop: waiting.HostsResolve([f"h{n}.job" for n in range(count)], loop))
    return {"s": every, "one answer s": one, "times one answer": every / one, "CPU s": time.process_time()}


def ssh_servers(_: int, port: int) -> Found:
    """One that stands for many: at every address of this host, each connection with its banner after a time of its own."""
    selector = selectors.DefaultSelector()
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("0.0.0.0", port))
    server.listen(4096)
    server.setblocking(False)
    selector.register(server, selectors.EVENT_READ)
    _ready()
    due: list[tuple[float, int, socket.socket]] = []
    while True:
        for _key, _events in selector.select(max(0.0, due[0][0] - time.monotonic()) if due else None):
            came = server.accept()[0]
            heapq.heappush(due, (time.monotonic() + ANSWER_S, came.fileno(), came))
        while due and due[0][0] <= time.monotonic():
            came = heapq.heappop(due)[2]
            try:
                came.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
            except OSError:
                pass
            came.close()


def banners(count: int, port: int) -> Found:
    servers = [f"127.9.{n // 250}.{n % 250 + 1}:{port}" for n in range(count)]
    one = min(_wait("port", lambda loop: Banners(servers[:1], loop)) for _ in range(5))
    every = _wait("port", lambda loop: Banners(servers, loop))
    return {"s": every, "one answer s": one, "times one answer": every / one, "CPU s": time.process_time()}


def _wait(kind: str, condition: Callable[[Loop], waiting.Condition]) -> float:
    """Seconds, from before it is asked."""
    loop = Loop()
    began = time.monotonic()
    waiting.perform(Wait(kind, "the benchmark", TIMEOUT_S), condition(loop), loop, _say, lambda: False)
    return time.monotonic() - began


def _ready() -> None:
    print("ready", flush=True)
    if len(sys.argv) > GATED:
        sys.stdin.readline()


def _found(found: Found) -> None:
    print(json.dumps(found), flush=True)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


GATED = 4  # arguments from which on a step waits for its line
STEPS: dict[str, Callable[..., Found]] = {
    "json.loads": once(loads),
    "rank table": once(from_table),
    "VC_WORKER_HOSTS": once(from_worker_hosts),
    "host file": once(from_host_file),
    "hub": hub,
    "members": members,
    "name server": name_server,
    "resolve": resolve,
    "ssh servers": ssh_servers,
    "banners": banners,
}

if __name__ == "__main__" and sys.argv[1] == "table":
    sys.stdout.write(table(int(sys.argv[2])))
elif __name__ == "__main__":
    _found(STEPS[sys.argv[1]](*map(int, sys.argv[2:])))
