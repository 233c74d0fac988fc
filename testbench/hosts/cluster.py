"""Several hosts on one machine.

A host is a set of namespaces: its own network, name, mounts (/etc/hosts, /proc, /sys), processes, IPC and memory group, on the disk of
this machine. Cables lead from all hosts to one switch, which leads nowhere else: no host reaches anything outside, and none has a
name server. Needs root and iproute2.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from testbench.hosts import kernel
from testbench.hosts.holder import Holder
from testbench.hosts.host import Host, ip

CAP_NET_ADMIN, CAP_SYS_ADMIN = 12, 21

_instances = itertools.count()


def missing() -> str:
    """What keeps this machine from having hosts; empty if nothing does."""
    if os.geteuid() != 0:
        return "hosts in network namespaces need root"
    if not shutil.which("ip"):
        return "hosts in network namespaces need `ip` of iproute2"
    line = next(line for line in kernel.read("/proc/self/status").splitlines() if line.startswith("CapEff:"))
    held = int(line.split()[1], 16)
    if not all(held & (1 << bit) for bit in (CAP_NET_ADMIN, CAP_SYS_ADMIN)):
        return "hosts in network namespaces need the capabilities SYS_ADMIN and NET_ADMIN (a privileged container)"
    return ""


class Hosts:
    """n hosts, h0 and on, each under 10.77.K.(10 + its index), K another one for each instance. Every host knows all, as hK and as
    hK.job. late: indices of those that do not start yet.

    One must `close` it, which `with` does, and which says what was still running."""

    def __init__(self, n: int, folder: Path, *, late: Iterable[int] = ()) -> None:
        number = next(_instances)
        self.id = f"{os.getpid()}-{number}"
        self.network = f"10.77.{1 + (os.getpid() * 16 + number) % 254}"
        self.folder = Path(folder).resolve() / f"hosts-{self.id}"
        self.folder.mkdir(parents=True)
        self.switch: Holder | None = None
        self._late = set(late)
        self._hosts = [Host(self, index) for index in range(n)]
        for host in self._hosts:
            self.name(None, host.name, host.address)
            self.name(None, f"{host.name}.job", host.address)

    def __getitem__(self, index: int) -> Host:
        return self._hosts[index]

    def __iter__(self) -> Iterator[Host]:
        return iter(self._hosts)

    def __len__(self) -> int:
        return len(self._hosts)

    def __enter__(self) -> Hosts:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> Hosts:
        try:
            self._open()
        except BaseException:
            self.close()
            raise
        return self

    def _open(self) -> None:
        wanted = [host for host in self if host.index not in self._late]
        self.switch = Holder(*kernel.PROGRAM, "hold-switch")
        for host in wanted:
            host.begin()
        self.switch.finish_start()
        ip(self.switch.pid, "link set lo up", "link add br0 type bridge", "link set br0 up")
        for host in wanted:
            host.finish()

    def close(self) -> list[str]:
        """Ends everything; what was still running, in words. Empty the second time."""
        left: list[str] = []
        with contextlib.ExitStack() as stack:  # each of these is done, even where another one fails
            if self.switch:
                stack.callback(self.switch.end)
            for host in self._hosts:
                stack.callback(lambda each: left.extend(each.stop()), host)
        self.switch = None
        return left

    def name(self, who: Host | None, name: str, address: str | Host) -> None:
        """who (None: every host) knows the name from now on."""
        for host in [who] if who else self._hosts:
            host.name_is(name, address.address if isinstance(address, Host) else address)

    def unname(self, who: Host | None, *names: str) -> None:
        """who (None: every host) does not know these names any more."""
        for host in [who] if who else self._hosts:
            for name in names:
                host.name_is_gone(name)
