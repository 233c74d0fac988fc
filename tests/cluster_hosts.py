"""Several hosts on one machine, for tests and for people: `python tests/cluster_hosts.py 3`.

A host is a set of namespaces: its own network, name, mounts (/etc/hosts, /proc, /sys), processes, IPC and memory group, on the disk of
this machine. Cables lead from all hosts to one switch, which leads nowhere else: no host reaches anything outside, and none has a
name server. Needs root and iproute2.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import cluster_kernel as kernel

DEADLINE_S = kernel.DEADLINE_S
LOOK_AGAIN_S = 0.01
CAP_NET_ADMIN, CAP_SYS_ADMIN = 12, 21
ROOT = Path(__file__).resolve().parents[1]

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


def wait_until(condition: Callable[[], Any], what: str, timeout: float = DEADLINE_S) -> Any:
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            msg = f"waited {timeout:g} s in vain: {what}"
            raise TimeoutError(msg)
        time.sleep(LOOK_AGAIN_S)


def _state_and_parent(pid: int) -> tuple[str, int]:
    fields = kernel.read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return (fields[0], int(fields[1])) if fields else ("", 0)


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def describe(pid: int) -> str:
    command = kernel.read(f"/proc/{pid}/cmdline").replace("\0", " ").strip()
    return f"{pid} ({_state_and_parent(pid)[0]}) {command or kernel.read(f'/proc/{pid}/comm').strip()}"


class Holder:
    """A process that has namespaces and lives as long as its input is open. pid: of the process to which others refer."""

    def __init__(self, *words: object, inside: int = 0) -> None:
        self.popen = subprocess.Popen(
            [*kernel.PROGRAM, *map(str, words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for the one who clears up
            preexec_fn=(lambda: kernel.join_network(inside)) if inside else None,
        )
        self.pid = 0
        self._pidfd: int | None = None  # its number may be another's by the time in which it is killed
        self.group = ""
        self.error = ""

    def finish_start(self) -> None:
        """Apart from the start, so that several can start at once."""
        lines = self._first_lines().splitlines()  # of two processes: in any order
        pid, _, self.group = next((line for line in lines if line != "ready"), "0").partition(" ")
        self.pid = int(pid) or self.popen.pid
        if "ready" in lines:
            self._pidfd = os.pidfd_open(self.pid)
        else:
            self.end()
            msg = f"{shlex.join(self.popen.args)}: {self.error or 'did not become ready'}"  # type: ignore[arg-type]
            raise RuntimeError(msg)

    def _first_lines(self) -> str:
        assert self.popen.stdout
        text = b""
        deadline = time.monotonic() + DEADLINE_S
        while text.count(b"\n") < 2 and select.select([self.popen.stdout], [], [], max(0, deadline - time.monotonic()))[0]:
            data = os.read(self.popen.stdout.fileno(), 4096)
            if not data:
                break
            text += data
        return text.decode()

    def tell(self, line: str) -> None:
        assert self.popen.stdin
        self.popen.stdin.write(f"{line}\n")
        self.popen.stdin.flush()

    def kill(self) -> None:
        if self._pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            os.close(self._pidfd)
            self._pidfd = None

    def end(self) -> None:
        """Returns when it is gone, with its namespaces and its group. One that was not ready yet ends with its input."""
        self.kill()
        if self.popen.returncode is None:
            self.error = self.popen.communicate(timeout=DEADLINE_S)[1].strip()


class Entered(subprocess.Popen):  # type: ignore[type-arg]
    """A program in a host. Its pid is the program's own, as this machine numbers it."""

    as_pid_1 = False

    @property
    def target(self) -> int:
        """The program itself: as_pid_1 has one process in front of it, which passes signals on and ends as the program does."""
        return wait_until(self._find_child, "no process came", 10) if self.as_pid_1 else self.pid

    def send_signal(self, sig: int) -> None:
        """To the program itself, so that even SIGKILL leaves nothing of it when `wait` returns."""
        if self.as_pid_1 and self.poll() is None:
            os.kill(self.target, sig)
        else:
            super().send_signal(sig)

    def _find_child(self) -> int:
        return next((pid for pid in _pids() if _state_and_parent(pid)[1] == self.pid), 0)


class Host:
    """One host. pid: its PID 1, as this machine numbers it; 0 while it does not run."""

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

    # Being there

    def start(self) -> None:
        """For a late one, or one that was stopped."""
        assert not self._holder, f"{self.name} runs"
        try:
            self._begin()
            self._finish()
        except BaseException:
            self.stop()
            raise

    def _begin(self) -> None:
        self._holder = Holder("hold-host", self.name, self.folder, f"ranklaunch-hosts-{self._cluster.id}-{self.name}")

    def _finish(self) -> None:
        assert self._holder
        self._holder.finish_start()
        switch = self._cluster.switch
        assert switch
        # The same after a start anew, as with a real card: others look for it there.
        card = "02:00:" + ":".join(f"{int(part):02x}" for part in self.address.split("."))
        cable = f"link add {self._port} type veth peer name eth0 address {card} netns {self.pid}"
        _ip(switch.pid, cable, f"link set {self._port} master br0 up")
        _ip(self.pid, "link set lo up", f"addr add {self.address}/24 dev eth0", "link set eth0 up")

    def stop(self) -> list[str]:
        """At once, like a machine without power; what ran there. `cut` it before if peers must not hear of it: a kernel that kills
        a process still closes its connections."""
        if not self._holder:
            return []
        runs = self.pid and self._holder.popen.poll() is None
        left = [f"{self.name}: {describe(pid)}" for pid in self.pids()] if runs else []
        self._holder.kill()
        for process in self._started:  # a host goes when the last of its processes is reaped, and these are our children
            process.wait(DEADLINE_S)
        self._holder.end()
        if self._wire:
            self._wire.end()
            _ip(self._switch, f"link del {self._near}")
        self._holder = self._wire = None
        self._started = []
        return left

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
        """Like subprocess.Popen, in this host, in a session of its own. as_pid_1: in a process namespace of its own, like a container."""
        holder = self._running().pid
        folder = os.path.abspath(cwd or os.getcwd())

        def enter() -> None:
            kernel.join(holder, folder)
            if preexec_fn:
                preexec_fn()

        words = [*((*kernel.PROGRAM, "as-pid-1") if as_pid_1 else ()), *map(str, argv)]
        # A process group that was made outside has the number 0 inside, and killpg(0) would reach whoever runs the tests.
        assert how.setdefault("start_new_session", True), "a process of a host needs a session of its own"
        with kernel.children_join(holder):
            started = Entered(words, env=env, preexec_fn=enter, **how)
        started.as_pid_1 = as_pid_1
        self._started.append(started)
        return started

    def run(
        self, argv: Sequence[object], timeout: float = DEADLINE_S, *, input: str | None = None, check: bool = False, **how: Any
    ) -> subprocess.CompletedProcess[str]:
        """Like subprocess.run, in this host; stdout and stderr are captured as text."""
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
        """Every process that lives here, but for PID 1 and zombies, as this machine numbers them; those of containers inside too."""
        holder = self._running().pid
        namespace = os.stat(f"/proc/{holder}/ns/pid").st_ino
        return [pid for pid in _pids() if pid != holder and kernel.is_below(pid, namespace) and _state_and_parent(pid)[0] not in "ZX"]

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
        """Pulls the cable out of the switch: nothing passes, and nobody is told."""
        _ip(self._switch, f"link set {self._port} down")

    def mend(self) -> None:
        _ip(self._switch, f"link set {self._port} up")

    def delay(self, ms: float, loss_percent: float = 0) -> None:
        """How long a packet from or to this host is on its way, so a round trip takes twice that; and how many are lost, each way.
        Again at any time, with 0 for none."""
        self._running()
        if not self._wire:
            self._wire = self._lay_wire()
        self._wire.tell(f"{ms} {loss_percent}")

    def _lay_wire(self) -> Holder:
        far = f"x{self.index}"
        _ip(
            self._switch,
            f"link add {self._near} type veth peer name {far}",
            f"link set {self._port} nomaster",
            f"link set {self._near} up",
            f"link set {far} master br0 up",
        )
        made = Holder("wire", self.pid, self._port, self._near, far, inside=self._switch)
        made.finish_start()
        return made

    # Names

    def name_is(self, name: str, address: str) -> None:
        """This host knows the name from now on, under this address only."""
        self._names[name] = address
        self._write_names()

    def name_is_gone(self, name: str) -> None:
        self._names.pop(name, None)
        self._write_names()

    def _write_names(self) -> None:
        lines = ["127.0.0.1 localhost", "::1 localhost", *(f"{address} {name}" for name, address in self._names.items())]
        # The same file as before: another one in its place would not be seen behind the mount.
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
        """The folder of this host's memory group, seen from outside. None: this machine lets us make none."""
        group = self._running().group
        return Path(group) if group else None

    def limit_memory(self, size: int | None) -> None:
        """For all processes of this host together, without swap. None: no limit."""
        group = self._group()
        if (group / "memory.max").exists():
            steps = [("memory.max", str(size or "max")), ("memory.swap.max", "0" if size else "max")]
        else:
            # The limit with swap is never below the one without, so it goes out of the way first.
            with_swap, wanted = "memory.memsw.limit_in_bytes", str(size or -1)
            steps = [(with_swap, "-1"), ("memory.limit_in_bytes", wanted), (with_swap, wanted)]
        for file, value in steps:
            if (group / file).exists():
                (group / file).write_text(value)

    def oom_kills(self) -> int:
        """How many processes of this host the kernel has killed for memory."""
        group = self._group()
        text = kernel.read(str(group / "memory.events")) or kernel.read(str(group / "memory.oom_control"))
        return int(dict(line.split() for line in text.splitlines())["oom_kill"])

    def _group(self) -> Path:
        if not self.memory_group:
            msg = "this machine lets us make no memory group: /sys/fs/cgroup is read-only, or has no memory controller"
            raise RuntimeError(msg)
        return self.memory_group

    def small_disk(self, megabytes: int) -> Path:
        """A folder of this host with a disk of its own. `seen` gives it to those outside."""
        folder = self.folder / f"disk{next(self._disks)}"
        folder.mkdir()
        self.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "none", folder], check=True)
        return folder

    def seen(self, path: Path | str) -> Path:
        """Where those outside find a file of this host: its mounts are its own."""
        return Path(f"/proc/{self._running().pid}/root{os.path.abspath(path)}")


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
        self.switch = Holder("hold-switch")
        for host in wanted:
            host._begin()
        self.switch.finish_start()
        _ip(self.switch.pid, "link set lo up", "link add br0 type bridge", "link set br0 up")
        for host in wanted:
            host._finish()

    def close(self) -> list[str]:
        """Ends everything; what was still running, in words. Empty the second time."""
        left: list[str] = []
        with contextlib.ExitStack() as stack:  # each of these is done, even where another one fails
            if self.switch:
                stack.callback(self.switch.end)
            for host in self._hosts:
                stack.callback(lambda host=host: left.extend(host.stop()))
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


def _ip(holder: int, *commands: str) -> None:
    """Commands of `ip`, in the network of a process."""
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


# For people


def main(argv: Sequence[str]) -> int:
    reason = missing()
    if reason or len(argv) > 1 or not all(word.isdigit() and 0 < int(word) < 200 for word in argv):
        print(reason or "usage: python tests/cluster_hosts.py [number of hosts, below 200]", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with tempfile.TemporaryDirectory(prefix="ranklaunch-hosts-") as folder, Hosts(int(argv[0]) if argv else 3, Path(folder)) as hosts:
        _tell(hosts)
        try:
            _wait_for_person()
        except KeyboardInterrupt:
            return 128 + signal.SIGINT
        finally:
            print("ending the hosts", flush=True)
    return 0


def _tell(hosts: Hosts) -> None:
    enter = shlex.join([sys.executable, os.path.relpath(kernel.__file__), "enter"])
    ranklaunch = shlex.quote(str(Path(sys.executable).with_name("ranklaunch")))
    print(f"{len(hosts)} hosts. A shell in one of them:\n")
    for host in hosts:
        print(f"  {enter} {host.pid}    # {host.name}, {host.address}")
    print("\nA job over all of them:\n")
    program = shlex.join(["--python", sys.executable, "--", os.path.relpath(ROOT / "tests" / "children" / "environment.py")])
    for host in hosts:
        where = f"--nodes {len(hosts)} --node {host.index} --master-addr h0 --slots 1 --method spawn"
        print(f"  {enter} {host.pid} {ranklaunch} run {where} --log-dir {hosts.folder}/logs/{host.name} {program} &")
    print("  wait\n", flush=True)


def _wait_for_person() -> None:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        print("Enter, end of input or SIGTERM ends the hosts.", flush=True)
        sys.stdin.readline()
        return
    shell = os.environ.get("SHELL", "/bin/sh")
    print(f"This is {shell} on the machine itself. Its end ends the hosts.", flush=True)
    subprocess.run([shell], check=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
