"""Several hosts on one machine.

A host is a set of namespaces: network, name, mounts (/etc/hosts, /proc, /sys), processes, IPC and memory group. It shares this machine's
disk. All hosts are connected to one switch, which has no other link: no host reaches anything outside, and none has a name server. Needs
root and iproute2.
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
    """Return the reason why this machine cannot run hosts; "" if it can."""
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
    """`n` hosts, called h0, h1 and so on, with addresses 10.77.K.(10 + index); K differs between instances.

    Every host resolves all names, as hI and as hI.job. late: indexes of hosts that do not start yet. `close`, called by `with`, ends the
    hosts and returns what was still running.
    """

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
        """End all hosts. Return a line for each process that was still running; none the second time."""
        orphans: list[str] = []
        with contextlib.ExitStack() as stack:  # each callback runs, even if another one fails
            if self.switch:
                stack.callback(self.switch.end)
            for host in self._hosts:
                stack.callback(lambda each: orphans.extend(each.stop()), host)
        self.switch = None
        return orphans

    def name(self, who: Host | None, name: str, address: str | Host) -> None:
        """Let a host (who; None: every host) resolve a name from now on."""
        for host in [who] if who else self._hosts:
            host.name_is(name, address.address if isinstance(address, Host) else address)

    def unname(self, who: Host | None, *names: str) -> None:
        """Let a host (who; None: every host) no longer resolve these names."""
        for host in [who] if who else self._hosts:
            for name in names:
                host.name_is_gone(name)
