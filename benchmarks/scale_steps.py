"""Steps of benchmarks/scale.py, each in a process of its own: `scale_steps.py STEP NUMBER [PORT]` prints its results as JSON.

A step for which others wait prints "ready" first. Steps that begin together wait for a line on standard input.
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
from ranklaunch.env.job import Program
from ranklaunch.env.settings import RANK_TABLE_PATHS
from ranklaunch.files import NoFiles
from ranklaunch.muster import wire
from ranklaunch.muster.driver import HubDriver, MemberDriver
from ranklaunch.muster.events import Action, Decide, Decided, Released, Told
from ranklaunch.plan.model import Muster, Wait
from ranklaunch.plan.planning import Request, make_plan
from ranklaunch.ranktable import make
from ranklaunch.supervise.waits import waiting
from ranklaunch.supervise.waits.ssh_banners import Banners
from ranklaunch.system.loop import Loop

DEVICES = 8
HOST_FILE = "/etc/volcano/worker.host"
ANSWER_S = 0.02  # seconds until the answer of a name server or an SSH server
TIMEOUT_S = 300.0
KEY = wire.job_key(b"a secret", "job")
HUB = "127.0.0.1"
FACTS = {"method": "torchrun", "nodes": "n", "program": "sha256:0123456789abcdef", "torch": "2.6.0"}

Result = dict[str, Any]


# Plans


class OneFile(NoFiles):
    """View of files that has exactly one file."""

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
    path = RANK_TABLE_PATHS[0]
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
    """Return a rank table made by another process, so that this process has needed no memory to make it."""
    with subprocess.Popen([sys.executable, __file__, "table", str(ranks)], stdout=subprocess.PIPE, text=True) as maker:
        assert maker.stdout
        return maker.stdout.read()


def once(prepared: Callable[[int], Callable[[], object]]) -> Callable[[int], Result]:
    """Return a step that measures one call. A small call comes before: imports at the first use do not depend on the size."""

    def measure(ranks: int) -> Result:
        prepared(DEVICES)()
        act = prepared(ranks)
        Path("/proc/self/clear_refs").write_text("5")  # reset the peak to the present size
        before, cpu, began = processes.peak_kb(os.getpid()), time.process_time(), time.perf_counter()
        kept = act()
        seconds, cpu_s = time.perf_counter() - began, time.process_time() - cpu
        assert kept
        peak = processes.peak_kb(os.getpid())
        return {"s": seconds, "CPU s": cpu_s, "peak MB": peak / 1024, "of it for this MB": (peak - before) / 1024}

    return measure


# Muster


def _muster(node: int, nodes: int, port: int) -> Muster:
    """Return the muster of a node. All hosts are addresses, so that no name is looked up; the hub contacts no other host."""
    hosts = (HUB, *(f"127.{1 + i // 62500}.{i // 250 % 250}.{i % 250 + 1}" for i in range(1, nodes)))
    return Muster(node=node, hosts=hosts, port=port, timeout_s=TIMEOUT_S, lost_after_s=60.0, end_timeout_s=TIMEOUT_S)


def hub(nodes: int, port: int) -> Result:
    """Run node 0: the hub, and the member that every node has, joined as in muster/nodes.py."""
    loop = Loop()
    owner = _Owner()
    driver = HubDriver(_muster(0, nodes, port), KEY, loop, _say, owner, 1.0, "all succeeded")
    member = MemberDriver(_muster(0, nodes, port), KEY, loop, _say, owner, hub=driver)
    if driver.door.trouble:
        raise RuntimeError(driver.door.trouble)
    member.start()
    member.ready(FACTS, 0, HUB)
    _ready()
    before = time.process_time()
    gone: list[bool] = []
    loop.on_readable(0, lambda: gone.append(True))  # run until the members have been released too
    loop.run_until(lambda: bool(gone))
    cpu_s = time.process_time() - before
    return {"released": owner.released[0], "CPU s": cpu_s, "peak MB": processes.peak_kb(os.getpid()) / 1024}


def members(nodes: int, port: int, part: int, parts: int) -> Result:
    """Run the real members of a part of the nodes in one process."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    loop = Loop()
    owner = _Owner()
    drivers = []
    base = _muster(0, nodes, port)
    for node in range(1 + part, nodes, parts):
        muster = Muster(node, base.hosts, port, base.timeout_s, base.lost_after_s, base.end_timeout_s)
        drivers.append(MemberDriver(muster, KEY, loop, _say, owner))
    _ready()
    began = time.monotonic()
    for node, member in zip(range(1 + part, nodes, parts), drivers):
        member.start()
        member.ready(FACTS, node, base.hosts[node])
    loop.run_until(lambda: len(owner.released) == len(drivers))
    _print_result({"began": began, "released": max(owner.released), "CPU s": time.process_time()})
    sys.stdin.readline()  # stay until node 0 has its results: the end of a member would end the job
    return {}


class _Owner:
    """Supervisor of several members. released: times of their releases."""

    def __init__(self) -> None:
        self.released: list[float] = []

    def on_word(self, word: Told, *, at_node_0: bool = False) -> None:
        raise RuntimeError(word)

    def on_news(self, action: Action) -> None:
        if not isinstance(action, Released):
            msg = f"the job ended: {action}"
            raise RuntimeError(msg)
        self.released.append(time.monotonic())

    def decide(self, question: Decide) -> Decided:
        raise RuntimeError(question)


# Names and banners


def name_server(_: int) -> Result:
    """Answer each query for a name with one IPv4 address, ANSWER_S after the query."""
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
    """Return the answer by RFC 1035, section 4: the question again, and an address if the question is for IPv4."""
    end = query.index(b"\0", 12) + 5
    query_type = struct.unpack_from("!H", query, end - 4)[0]
    address = b"\xc0\x0c" + struct.pack("!HHIH4s", 1, 1, 60, 4, socket.inet_aton("10.9.8.7")) if query_type == 1 else b""
    return query[:2] + struct.pack("!HHHHH", 0x8580, 1, 1 if address else 0, 0, 0) + query[12:end] + address


def resolve(count: int) -> Result:
    """Measure the look-up of names. One look-up comes before, because the first one includes work that is done once a process."""
    _wait("hosts", lambda loop: waiting.HostsResolve(["first.job"], loop))
    one = min(_wait("hosts", lambda loop, n=n: waiting.HostsResolve([f"one{n}.job"], loop)) for n in range(5))  # type: ignore[misc]
    every = _wait("hosts", lambda loop: waiting.HostsResolve([f"h{n}.job" for n in range(count)], loop))
    return {"s": every, "one answer s": one, "times one answer": every / one, "CPU s": time.process_time()}


def ssh_servers(_: int, port: int) -> Result:
    """Run one server for many: it listens at every address of this host, and sends a banner ANSWER_S after each connection."""
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
            connection = server.accept()[0]
            heapq.heappush(due, (time.monotonic() + ANSWER_S, connection.fileno(), connection))
        while due and due[0][0] <= time.monotonic():
            connection = heapq.heappop(due)[2]
            try:
                connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
            except OSError:
                pass
            connection.close()


def banners(count: int, port: int) -> Result:
    servers = [f"127.9.{n // 250}.{n % 250 + 1}:{port}" for n in range(count)]
    one = min(_wait("port", lambda loop: Banners(servers[:1], loop)) for _ in range(5))
    every = _wait("port", lambda loop: Banners(servers, loop))
    return {"s": every, "one answer s": one, "times one answer": every / one, "CPU s": time.process_time()}


def _wait(kind: str, condition: Callable[[Loop], waiting.Condition]) -> float:
    """Return the seconds until a condition holds, from before its first check."""
    loop = Loop()
    began = time.monotonic()
    waiting.perform(Wait(kind, "the benchmark", TIMEOUT_S), condition(loop), loop, _say, lambda: False)
    return time.monotonic() - began


def _ready() -> None:
    print("ready", flush=True)
    if len(sys.argv) > GATED:
        sys.stdin.readline()


def _print_result(result: Result) -> None:
    print(json.dumps(result), flush=True)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


GATED = 4  # a step with more arguments than this waits for a line
STEPS: dict[str, Callable[..., Result]] = {
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
    _print_result(STEPS[sys.argv[1]](*map(int, sys.argv[2:])))
