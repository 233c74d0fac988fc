"""One host: start and end, processes, network, names and resources."""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbench.hosts import kernel, wire
from testbench.hosts.holder import Entered, Holder, describe, pids, state_and_parent, wait_until
from testbench.hosts.kernel import DEADLINE_S

if TYPE_CHECKING:
    from testbench.hosts.cluster import Hosts


class Host:
    """A host. pid: its PID 1, numbered by this machine; 0 while the host does not run."""

    def __init__(self, cluster: Hosts, index: int) -> None:
        self.index = index
        self.name = f"h{index}"
        self.address = f"{cluster.network}.{10 + index}"
        self.folder = cluster.folder / self.name
        self._cluster = cluster
        self._names: dict[str, str] = {}
        self._holder: Holder | None = None
        self._wire: Holder | None = None
        self._started: list[Entered] = []
        self._disks = itertools.count()
        self._write_files()

    def __repr__(self) -> str:
        return f"{self.name} ({self.address}, PID 1 is {self.pid})"

    @property
    def pid(self) -> int:
        return self._holder.pid if self._holder else 0

    # Start and end

    def start(self) -> None:
        """Start a late host, or one that was stopped."""
        assert not self._holder, f"{self.name} runs"
        try:
            self.begin()
            self.finish()
        except BaseException:
            self.stop()
            raise

    def begin(self) -> None:
        self._holder = Holder(*kernel.PROGRAM, "hold-host", self.name, self.folder, f"ranklaunch-hosts-{self._cluster.id}-{self.name}")

    def finish(self) -> None:
        assert self._holder
        self._holder.finish_start()
        switch = self._cluster.switch
        assert switch
        # A MAC address that survives restarts, like that of a real card: peers keep it in their caches.
        card = "02:00:" + ":".join(f"{int(part):02x}" for part in self.address.split("."))
        cable = f"link add {self._port} type veth peer name eth0 address {card} netns {self.pid}"
        ip(switch.pid, cable, f"link set {self._port} master br0 up")
        ip(self.pid, "link set lo up", f"addr add {self.address}/24 dev eth0", "link set eth0 up")

    def stop(self) -> list[str]:
        """Kill the host at once, like a power failure. Return a line for each process that ran.

        Call `cut` before if peers must not notice: the kernel closes the connections of killed processes.
        """
        if not self._holder:
            return []
        runs = self.pid and self._holder.popen.poll() is None
        orphans = [f"{self.name}: {describe(pid)}" for pid in self.pids()] if runs else []
        self._holder.kill()
        for process in self._started:  # the namespaces end when the last process is reaped, and these are our children
            process.wait(DEADLINE_S)
        self._holder.end()
        if self._wire:
            self._wire.end()
            ip(self._switch, f"link del {self._near}")
        self._holder = self._wire = None
        self._started = []
        return orphans

    def _running(self) -> Holder:
        assert self._holder, f"{self.name} does not run"
        assert self._holder.popen.poll() is None, f"{self.name} has ended: its PID 1 was killed"
        return self._holder

    # Processes

    def popen(
        self,
        argv: Sequence[object],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | str | None = None,
        as_pid_1: bool = False,
        preexec_fn: Callable[[], object] | None = None,
        **how: Any,
    ) -> Entered:
        """Start a process in this host and in its own session, like subprocess.Popen. as_pid_1: in its own process namespace too."""
        holder = self._running().pid
        folder = os.path.abspath(cwd or os.getcwd())

        def enter() -> None:
            kernel.join(holder, folder)
            if preexec_fn:
                preexec_fn()

        words = [*((*kernel.PROGRAM, "as-pid-1") if as_pid_1 else ()), *map(str, argv)]
        # A process group from outside has the number 0 inside, and killpg(0) would kill the test run.
        assert how.setdefault("start_new_session", True), "a process of a host needs a session of its own"
        with kernel.children_join(holder):
            started = Entered(words, env=env, preexec_fn=enter, **how)
        started.as_pid_1 = as_pid_1
        self._started.append(started)
        return started

    def run(
        self, argv: Sequence[object], timeout: float = DEADLINE_S, *, input: str | None = None, check: bool = False, **how: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in this host, like subprocess.run; stdout and stderr are captured as text."""
        stdin = subprocess.DEVNULL if input is None else subprocess.PIPE
        pipes = {"stdin": stdin, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with self.popen(argv, **{**pipes, **how}) as process:
            try:
                out, err = process.communicate(input, timeout)
            except BaseException:
                process.kill()
                raise
        done = subprocess.CompletedProcess(process.args, process.returncode, out, err)
        if check:
            done.check_returncode()
        return done

    def pids(self) -> list[int]:
        """Return the processes of this host and of containers in it, numbered by this machine, without PID 1 and zombies."""
        holder = self._running().pid
        namespace = os.stat(f"/proc/{holder}/ns/pid").st_ino
        return [pid for pid in pids() if pid != holder and kernel.is_below(pid, namespace) and state_and_parent(pid)[0] not in "ZX"]

    def bound_ports(self) -> list[str]:
        """Return the bound TCP and UDP ports of this host, as "tcp 6379": listening sockets, and UDP sockets without a peer."""
        lines = self.run(["cat", *(f"/proc/net/{name}" for name in ("tcp", "tcp6", "udp", "udp6"))], check=True).stdout.splitlines()
        rows = [line.split() for line in lines if ": " in line]
        kinds = {"0A": "tcp", "07": "udp"}
        return sorted({f"{kinds[row[3]]} {int(row[1].rpartition(':')[2], 16)}" for row in rows if row[3] in kinds})

    def wait_until_empty(self, timeout: float = DEADLINE_S) -> None:
        try:
            wait_until(lambda: not self.pids(), "", timeout)
        except TimeoutError as error:
            msg = f"left on {self.name} after {timeout:g} s: {'; '.join(map(describe, self.pids()))}"
            raise TimeoutError(msg) from error

    # Network

    @property
    def _switch(self) -> int:
        assert self._cluster.switch
        return self._cluster.switch.pid

    @property
    def _port(self) -> str:
        return f"v{self.index}"

    @property
    def _near(self) -> str:
        return f"w{self.index}"

    def cut(self) -> None:
        """Disconnect the host from the switch: packets are lost silently."""
        ip(self._switch, f"link set {self._port} down")

    def mend(self) -> None:
        ip(self._switch, f"link set {self._port} up")

    def delay(self, ms: float, loss_percent: float = 0) -> None:
        """Set the delay and the loss of packets from and to this host, for each direction: a round trip takes twice `ms`. 0 ends both."""
        self._running()
        if not self._wire:
            self._wire = self._lay_wire()
        self._wire.tell(f"{ms} {loss_percent}")

    def _lay_wire(self) -> Holder:
        far = f"x{self.index}"
        ip(
            self._switch,
            f"link add {self._near} type veth peer name {far}",
            f"link set {self._port} nomaster",
            f"link set {self._near} up",
            f"link set {far} master br0 up",
        )
        plain = [*wire.PROGRAM, "plain", "eth0"]
        subprocess.run(plain, capture_output=True, timeout=DEADLINE_S, check=True, preexec_fn=lambda: kernel.join_network(self.pid))
        made = Holder(*wire.PROGRAM, "carry", self._port, self._near, far, inside=self._switch)
        made.finish_start()
        return made

    # Names

    def name_is(self, name: str, address: str) -> None:
        """Resolve a name to this address from now on."""
        self._names[name] = address
        self._write_names()

    def name_is_gone(self, name: str) -> None:
        self._names.pop(name, None)
        self._write_names()

    def _write_names(self) -> None:
        lines = ["127.0.0.1 localhost", "::1 localhost", *(f"{address} {name}" for name, address in self._names.items())]
        # Written in place: the bind mount would not show a new file of the same name.
        with open(self.folder / "etc" / "hosts", "r+b", buffering=0) as file:
            file.truncate(file.write("".join(f"{line}\n" for line in lines).encode()))

    def _write_files(self) -> None:
        etc = self.folder / "etc"
        etc.mkdir(parents=True)
        (self.folder / "cgroup").mkdir()
        (etc / "hosts").touch()
        (etc / "hostname").write_text(f"{self.name}\n")
        (etc / "resolv.conf").touch()
        kinds = ("passwd", "group", "shadow", "hosts", "networks", "protocols", "services", "ethers", "rpc")
        (etc / "nsswitch.conf").write_text("".join(f"{kind}: files\n" for kind in kinds))

    # Resources

    @property
    def memory_group(self) -> Path | None:
        """Folder of this host's memory group, as seen from outside; None if this machine does not allow one."""
        group = self._running().group
        return Path(group) if group else None

    def limit_memory(self, size: int | None) -> None:
        """Limit the memory of all processes of this host together, without swap. None: no limit."""
        group = self._group()
        if (group / "memory.max").exists():
            steps = [("memory.max", str(size or "max")), ("memory.swap.max", "0" if size else "max")]
        else:
            # The limit with swap must never be below the limit without swap, so it is removed first.
            with_swap, wanted = "memory.memsw.limit_in_bytes", str(size or -1)
            steps = [(with_swap, "-1"), ("memory.limit_in_bytes", wanted), (with_swap, wanted)]
        for file, value in steps:
            if (group / file).exists():
                (group / file).write_text(value)

    def oom_kills(self) -> int:
        """Return the number of processes of this host that the kernel's OOM killer has killed."""
        group = self._group()
        text = kernel.read(str(group / "memory.events")) or kernel.read(str(group / "memory.oom_control"))
        return int(dict(line.split() for line in text.splitlines())["oom_kill"])

    def _group(self) -> Path:
        if not self.memory_group:
            msg = "cannot make a memory group on this machine: /sys/fs/cgroup is read-only, or has no memory controller"
            raise RuntimeError(msg)
        return self.memory_group

    def small_disk(self, megabytes: int) -> Path:
        """Make a folder of this host on its own tmpfs. `seen` returns its path from outside."""
        folder = self.folder / f"disk{next(self._disks)}"
        folder.mkdir()
        self.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "none", folder], check=True)
        return folder

    def seen(self, path: Path | str) -> Path:
        """Return the path of a file of this host as seen from outside the host's mounts."""
        return Path(f"/proc/{self._running().pid}/root{os.path.abspath(path)}")


def ip(holder: int, *commands: str) -> None:
    """Run commands of `ip` in the network of a process."""
    done = subprocess.run(
        ["ip", "-batch", "-"],
        input="\n".join(commands),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        preexec_fn=lambda: kernel.join_network(holder),
    )
    if done.returncode != 0:
        msg = f"ip: {'; '.join(commands)}: {done.stderr.strip()}"
        raise RuntimeError(msg)
