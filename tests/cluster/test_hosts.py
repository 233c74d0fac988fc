"""Hosts are as separate as real ones, can be cut, slowed down and starved, tell the truth about what ran, and leave nothing."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testbench.hosts import Entered, Host, Hosts, missing, wait_until
from testbench.hosts.kernel import DEADLINE_S
from testbench.hosts.world import let_go, own_world, still_there, world_of
from testbench.jobs.job import as_from_a_terminal
from testbench.places import ROOT, child

MakeHosts = Callable[..., Hosts]

PORT = 5000
SERVER = """
import socket, socketserver, sys
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        data = socket.gethostname().encode() + b"\\n"
        while data:
            self.request.sendall(data)
            data = self.request.recv(65536)
socketserver.ThreadingTCPServer.daemon_threads = True
with socketserver.ThreadingTCPServer(("", int(sys.argv[1])), Echo) as server:
    print("ready", flush=True)
    server.serve_forever()
"""
CLIENT = """
import socket, sys, time
before = time.monotonic()
try:
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=float(sys.argv[3])) as connection:
        took = time.monotonic() - before
        print("reached", connection.makefile().readline().strip(), took)
except OSError as error:
    print(type(error).__name__, error.errno, time.monotonic() - before)
"""
TELLS_OF_SIGNALS = """
import os, signal, sys
def came(number, frame):
    print("came", number, flush=True)
    sys.exit(5)
signal.signal(signal.SIGTERM, came)
print("ready", os.getpid(), flush=True)
while True:
    signal.pause()
"""
SLEEPER = (sys.executable, child("sleeper.py"))


def python(host: Host, code: str, *words: object, **how: object) -> str:
    done = host.run([sys.executable, "-c", textwrap.dedent(code), *words], **how)
    assert done.returncode == 0, done.stderr
    return done.stdout


def start(host: Host, *words: object, **how: object) -> Entered:
    """A program that has said that it is ready."""
    process = host.popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, **how)
    assert process.stdout.readline().startswith("ready")
    return process


def serve(host: Host, port: int = PORT) -> Entered:
    return start(host, sys.executable, "-c", SERVER, port)


def end(*processes: Entered) -> None:
    for process in processes:
        with process:
            process.kill()


def connect(host: Host, name: str, port: int = PORT, timeout: float = DEADLINE_S) -> tuple[str, str, float]:
    """What became of it, the name of the host that was reached or the number of the error, and the seconds it took."""
    what, detail, took = python(host, CLIENT, name, port, timeout).split()
    return what, detail, float(took)


def reaches(host: Host, name: str, **how: float) -> bool:
    return connect(host, name, **how)[0] == "reached"


# What a host is


def test_each_has_its_own_name_files_links_and_processes(hosts: MakeHosts) -> None:
    cluster = hosts(3)
    for host in cluster:
        assert python(host, "import socket; print(socket.gethostname())") == f"{host.name}\n"
        assert host.run(["cat", "/etc/hostname"]).stdout == f"{host.name}\n"
        known = dict(reversed(line.split()) for line in host.run(["cat", "/etc/hosts"]).stdout.splitlines() if line.startswith("10."))
        assert known == {name: other.address for other in cluster for name in (other.name, f"{other.name}.job")}
        links = json.loads(host.run(["ip", "-j", "addr"]).stdout)
        assert [link["ifname"] for link in links] == ["lo", "eth0"]
        assert [a["local"] for a in links[1]["addr_info"] if a["family"] == "inet"] == [host.address]
        assert sorted(host.run(["ls", "/sys/class/net"]).stdout.split()) == ["eth0", "lo"]
        seen = [int(name) for name in host.run(["ls", "/proc"]).stdout.split() if name.isdigit()]
        assert len(seen) == 2  # PID 1 and ls
        assert seen[0] == 1
    addresses = [host.address for host in cluster]
    assert len(set(addresses)) == 3
    assert len({address.rpartition(".")[0] for address in addresses}) == 1


def test_the_machine_itself_stays_as_it_was(hosts: MakeHosts) -> None:
    before = own_world()
    cluster = hosts(2)
    cluster[0].small_disk(1)
    cluster[0].delay(1)
    assert own_world() == before


def test_they_reach_each_other_by_name(hosts: MakeHosts) -> None:
    cluster = hosts(3)
    servers = [serve(host) for host in cluster]
    for i, host in enumerate(cluster):
        for j in {i, (i + 1) % 3}:
            name = cluster[j].name if i == 0 else f"{cluster[j].name}.job"
            assert connect(host, name)[:2] == ("reached", cluster[j].name)
    end(*servers)


def test_they_reach_nothing_outside(hosts: MakeHosts) -> None:
    (host,) = hosts(1)
    with socket.create_server(("127.0.0.1", 0)) as machine:
        assert connect(host, "127.0.0.1", machine.getsockname()[1])[:2] == ("ConnectionRefusedError", str(errno.ECONNREFUSED))
    assert connect(host, "192.0.2.1")[:2] == ("OSError", str(errno.ENETUNREACH))
    assert json.loads(host.run(["ip", "-j", "route", "show", "default"]).stdout or "[]") == []


def test_two_instances_do_not_meet(hosts: MakeHosts) -> None:
    one, other = hosts(2), hosts(2)
    server = serve(one[1])
    assert connect(one[0], "h1")[:2] == ("reached", "h1")
    assert connect(other[0], "h1")[0] == "ConnectionRefusedError"
    assert connect(other[0], one[1].address)[:2] == ("OSError", str(errno.ENETUNREACH))
    end(server)
    assert other.close() == []
    assert reaches_itself(one[0])


def reaches_itself(host: Host) -> bool:
    server = serve(host)
    reached = reaches(host, host.name)
    end(server)
    return reached


# Names

RESOLVE = """
import socket, sys, time
before = time.monotonic()
try:
    print(socket.gethostbyname(sys.argv[1]), end=" ")
except socket.gaierror as error:
    print("unknown" if error.errno == socket.EAI_NONAME else error, end=" ")
print(time.monotonic() - before < 2)
"""


def resolve(host: Host, name: str) -> str:
    address, fast = python(host, RESOLVE, name).split()
    assert fast == "True"
    return address


def test_a_name_comes_late_and_goes(hosts: MakeHosts) -> None:
    cluster = hosts(2)
    server = serve(cluster[1])
    assert resolve(cluster[0], "never.job") == "unknown"
    cluster.unname(cluster[0], "h1", "h1.job")
    assert resolve(cluster[0], "h1") == resolve(cluster[0], "h1.job") == "unknown"
    assert resolve(cluster[1], "h1") == cluster[1].address
    cluster.name(cluster[0], "h1", cluster[1])
    assert reaches(cluster[0], "h1")
    assert resolve(cluster[0], "h1.job") == "unknown"
    cluster.name(None, "master", cluster[0])
    assert {resolve(host, "master") for host in cluster} == {cluster[0].address}
    cluster.name(None, "master", cluster[1])
    assert {resolve(host, "master") for host in cluster} == {cluster[1].address}
    cluster.unname(None, "master")
    assert {resolve(host, "master") for host in cluster} == {"unknown"}
    end(server)


def test_a_running_process_sees_a_new_name(hosts: MakeHosts) -> None:
    (host,) = hosts(1)
    code = """
    import socket, time
    print("ready", flush=True)
    while True:
        try:
            print(socket.gethostbyname("later.job"), flush=True)
            break
        except socket.gaierror:
            time.sleep(0.01)
    """
    for as_pid_1 in (False, True):
        waiting = start(host, sys.executable, "-c", textwrap.dedent(code), as_pid_1=as_pid_1)
        assert waiting.poll() is None
        host.name_is("later.job", "10.77.0.1")
        with waiting:
            assert waiting.communicate(timeout=DEADLINE_S)[0] == "10.77.0.1\n"
        host.name_is_gone("later.job")


def test_a_host_comes_late_stops_and_comes_again(hosts: MakeHosts) -> None:
    cluster = hosts(2, late=[1])
    assert cluster[1].pid == 0
    assert resolve(cluster[0], "h1") == cluster[1].address
    assert not reaches(cluster[0], "h1", timeout=0.2)
    with pytest.raises(AssertionError, match="h1 does not run"):
        cluster[1].run(["true"])
    for _ in range(2):
        cluster[1].start()
        server = serve(cluster[1])
        wait_until(lambda: reaches(cluster[0], "h1", timeout=1), "h1 is not reached")
        (said,) = cluster[1].stop()
        assert said.startswith(f"h1: {server.pid} (")
        assert server.returncode == -signal.SIGKILL
        server.stdout.close()
        assert not reaches(cluster[0], "h1", timeout=0.2)


# The network


def test_cut_and_mended(hosts: MakeHosts) -> None:
    cluster = hosts(3)
    servers = [serve(cluster[1]), serve(cluster[2])]
    code = """
    import socket, sys
    with socket.create_connection(("h1", int(sys.argv[1])), timeout=60) as connection:
        file = connection.makefile()
        print("ready", file.readline().strip(), flush=True)
        for line in sys.stdin:
            connection.sendall(line.encode())
            print("sent", flush=True)
            print(file.readline().strip(), flush=True)
    """
    talk = cluster[0].popen(
        [sys.executable, "-c", textwrap.dedent(code), PORT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    with talk:
        assert talk.stdout.readline() == "ready h1\n"
        cluster[1].cut()
        talk.stdin.write("over the gap\n")
        assert talk.stdout.readline() == "sent\n"
        assert not reaches(cluster[0], "h1", timeout=0.5)
        assert reaches(cluster[0], "h2")  # the others go on
        cluster[1].mend()
        assert talk.stdout.readline() == "over the gap\n"
        assert reaches(cluster[0], "h1")
        talk.stdin.close()
    end(*servers)


def fastest(host: Host, name: str) -> float:
    """Of three, where a busy machine may have been slow; what is delayed cannot be faster once."""
    return min(connect(host, name)[2] for _ in range(3))


def test_delay_is_measured_each_way(hosts: MakeHosts) -> None:
    cluster = hosts(3)
    servers = [serve(cluster[1]), serve(cluster[2])]
    assert fastest(cluster[0], "h1") < 0.2
    cluster[1].delay(100)
    assert 0.2 <= fastest(cluster[0], "h1") < 0.4
    assert fastest(cluster[0], "h2") < 0.2
    cluster[1].delay(200)
    assert connect(cluster[0], "h1")[2] >= 0.4
    cluster[1].delay(0)
    assert fastest(cluster[0], "h1") < 0.2
    end(*servers)


def test_loss_delays_but_corrupts_nothing(hosts: MakeHosts) -> None:
    cluster = hosts(2)
    server = serve(cluster[1])
    cluster[1].delay(1, loss_percent=100)
    assert not reaches(cluster[0], "h1", timeout=0.5)
    cluster[1].delay(1, loss_percent=2)
    cluster[1].cut()  # a slow host, too, can be cut and mended
    assert not reaches(cluster[0], "h1", timeout=0.5)
    cluster[1].mend()
    wait_until(lambda: reaches(cluster[0], "h1", timeout=1), "h1 is not reached")
    sent = os.urandom(300_000)
    (cluster[0].folder / "sent").write_bytes(sent)
    code = """
    import hashlib, pathlib, socket, sys, threading
    data = pathlib.Path(sys.argv[1]).read_bytes()
    with socket.create_connection(("h1", int(sys.argv[2])), timeout=60) as connection:
        file = connection.makefile("rb")
        file.readline()
        threading.Thread(target=connection.sendall, args=(data,)).start()
        print(hashlib.sha256(file.read(len(data))).hexdigest())
    """
    assert python(cluster[0], code, cluster[0].folder / "sent", PORT) == f"{hashlib.sha256(sent).hexdigest()}\n"
    end(server)


# Resources

TAKES = """
import sys
data = bytearray(int(sys.argv[1]) << 20)
print(len(data) >> 20)
"""
COUNTS = "from ranklaunch.system.memory import look; print(look().kills)"


BOTH = [pytest.param(False, marks=pytest.mark.table), True]


@pytest.mark.parametrize("as_pid_1", BOTH)
def test_memory_limit_kills_and_is_counted(hosts: MakeHosts, as_pid_1: bool) -> None:
    cluster = hosts(2)
    host, other = cluster
    if not host.memory_group:
        pytest.skip("this machine lets us make no memory group")
    assert (host.oom_kills(), python(host, COUNTS, as_pid_1=as_pid_1)) == (0, "0\n")
    takes = [sys.executable, "-c", TAKES, 150]
    assert host.run(takes, as_pid_1=as_pid_1).stdout == "150\n"
    host.limit_memory(64 << 20)
    assert host.run(takes, as_pid_1=as_pid_1).returncode == -signal.SIGKILL
    assert (host.oom_kills(), python(host, COUNTS, as_pid_1=as_pid_1)) == (1, "1\n")
    assert other.run(takes, as_pid_1=as_pid_1).stdout == "150\n"
    assert other.oom_kills() == 0
    host.limit_memory(None)
    assert host.run(takes, as_pid_1=as_pid_1).stdout == "150\n"


@pytest.mark.parametrize("as_pid_1", BOTH)
def test_small_disk_fills(hosts: MakeHosts, as_pid_1: bool) -> None:
    (host,) = hosts(1)
    waiting = start(host, sys.executable, "-c", TELLS_OF_SIGNALS, as_pid_1=as_pid_1)  # its mounts are made before the disk
    disk = host.small_disk(2)
    done = host.run(["dd", "if=/dev/zero", f"of={disk}/file", "bs=1024"], as_pid_1=as_pid_1, env={**os.environ, "LC_ALL": "C"})
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert host.seen(disk / "file").stat().st_size == 2 << 20
    assert Path(f"/proc/{waiting.target}/root{disk}/file").exists()
    assert not (disk / "file").exists()  # the machine's own disk has nothing of it
    host.seen(disk / "file").unlink()
    host.seen(disk / "from_outside").write_text("seen")
    assert host.run(["cat", disk / "from_outside"]).stdout == "seen"
    end(waiting)


# Processes

forms = pytest.mark.parametrize("as_pid_1", [False, True], ids=["process", "pid1"])


@forms
def test_exit_codes_come_through(hosts: MakeHosts, as_pid_1: bool) -> None:
    (host,) = hosts(1)
    for code in (0, 7, 137, 255):
        assert host.run(["sh", "-c", f"exit {code}"], as_pid_1=as_pid_1).returncode == code


@forms
def test_signals_reach_the_program_itself(hosts: MakeHosts, as_pid_1: bool) -> None:
    (host,) = hosts(1)
    process = host.popen([sys.executable, "-c", TELLS_OF_SIGNALS], stdout=subprocess.PIPE, text=True, as_pid_1=as_pid_1)
    with process:
        word, number = process.stdout.readline().split()
        assert (word, number == "1") == ("ready", as_pid_1)
        assert (process.target == process.pid) is not as_pid_1
        assert set(host.pids()) == {process.pid, process.target}
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == f"came {signal.SIGTERM.value}\n"
        assert process.wait(DEADLINE_S) == 5
    host.wait_until_empty()


@pytest.mark.parametrize(("as_pid_1", "number"), [(False, signal.SIGABRT), (True, signal.SIGKILL), (True, signal.SIGABRT)])
def test_death_by_a_signal_comes_through(hosts: MakeHosts, as_pid_1: bool, number: int) -> None:
    (host,) = hosts(1)
    code = "import os, signal; signal.signal(signal.SIGABRT, lambda *_: os._exit(9)); print('ready', flush=True); signal.pause()"
    words = (sys.executable, "-c", code) if as_pid_1 and number != signal.SIGKILL else SLEEPER
    process = start(host, *words, as_pid_1=as_pid_1)
    with process:
        process.send_signal(number)
        # PID 1 has no default action: a signal that it does not handle is none.
        assert process.wait(DEADLINE_S) == (9 if words != SLEEPER else -number)
    assert host.pids() == []


def test_the_one_in_front_goes_and_the_program_with_it(hosts: MakeHosts) -> None:
    (host,) = hosts(1)
    for number in (signal.SIGKILL, signal.SIGTERM):
        process = start(host, sys.executable, "-c", TELLS_OF_SIGNALS, as_pid_1=True)
        with process:
            os.kill(process.pid, number)
            assert process.wait(DEADLINE_S) == (5 if number == signal.SIGTERM else -number)
        host.wait_until_empty()


def test_pid_1_ignores_what_it_does_not_handle(hosts: MakeHosts) -> None:
    (host,) = hosts(1)
    assert host.run(["sh", "-c", "kill -TERM $$; exit 3"], as_pid_1=True).returncode == 3
    assert host.run(["sh", "-c", "kill -TERM $$; exit 3"]).returncode == -signal.SIGTERM


def test_as_pid_1_everything_goes_with_it(hosts: MakeHosts) -> None:
    (host,) = hosts(1)
    process = start(host, "sh", "-c", "sleep 600 & sleep 600 & echo ready; wait", as_pid_1=True)
    assert len(host.pids()) == 4  # the one in front, sh and two of its own
    with process:
        os.kill(process.target, signal.SIGKILL)
        assert process.wait(DEADLINE_S) == -signal.SIGKILL
    host.wait_until_empty()


def test_orphans_are_reaped_and_shown(hosts: MakeHosts) -> None:
    (host,) = hosts(1)
    host.run(["sh", "-c", "sleep 600 > /dev/null 2>&1 & exit 0"])
    (orphan,) = host.pids()
    with pytest.raises(TimeoutError, match=rf"left on h0 .*{orphan} \(S\) sleep 600"):
        host.wait_until_empty(timeout=0.05)
    os.kill(orphan, signal.SIGTERM)
    wait_until(lambda: not Path(f"/proc/{orphan}").exists(), "PID 1 does not reap")
    assert host.pids() == []


def test_how_a_process_starts(hosts: MakeHosts, tmp_path: Path) -> None:
    (host,) = hosts(1)
    code = "import os, sys; print(os.getcwd(), os.environ.get('ONLY'), 'HOME' in os.environ, sys.stdin.read())"
    done = host.run([sys.executable, "-c", code], cwd=tmp_path, env={"ONLY": "this"}, input="typed")
    assert done.stdout == f"{tmp_path} this False typed\n"
    with pytest.raises(FileNotFoundError):
        host.run([tmp_path / "no_such_program"])
    assert host.run([tmp_path / "no_such_program"], as_pid_1=True).returncode == 127
    with pytest.raises(subprocess.TimeoutExpired):
        host.run(["sleep", "600"], timeout=0.05)
    with pytest.raises(subprocess.CalledProcessError):
        host.run(["false"], check=True)
    host.wait_until_empty()
    # This process is where it was, for what it starts next.
    assert os.readlink("/proc/thread-self/ns/pid_for_children") == os.readlink("/proc/self/ns/pid")
    assert subprocess.run(["hostname"], capture_output=True, text=True, check=True).stdout.strip() == socket.gethostname()


# The end


@pytest.fixture(autouse=True)
def namespaces_let_go() -> Iterator[None]:
    yield
    let_go()


def test_nothing_is_left(hosts: MakeHosts) -> None:
    before = own_world()
    cluster = hosts(3)
    world = world_of(cluster)
    assert len([name for name in world if name.startswith("net:")]) == 4
    assert still_there(world) == world
    cluster[0].small_disk(1)
    cluster[1].delay(10)
    processes = [start(cluster[0], *SLEEPER), start(cluster[2], *SLEEPER, as_pid_1=True)]
    pids = [processes[0].pid, processes[1].pid, processes[1].target]
    left = cluster.close()
    assert sorted(int(re.match(r"h[02]: (\d+) \(\w\) .*sleeper", line)[1]) for line in left) == sorted(pids)
    assert [process.returncode for process in processes] == [-signal.SIGKILL] * 2
    assert still_there(world | {f"/proc/{pid}" for pid in pids}) == set()
    assert own_world() == before
    shutil.rmtree(cluster.folder)  # nothing is mounted there
    assert cluster.close() == []
    for process in processes:
        process.stdout.close()


def test_nothing_is_left_of_a_start_that_failed(hosts: MakeHosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = own_world()
    cluster = Hosts(3, tmp_path)
    shutil.rmtree(cluster[2].folder / "etc")
    worlds = []
    close = cluster.close
    monkeypatch.setattr(cluster, "close", lambda: (worlds.append(world_of(cluster)), close()))
    with pytest.raises(RuntimeError, match=r"hold-host h2 .*No such file or directory: .*h2/etc"):
        cluster.open()
    (world,) = worlds
    assert len([name for name in world if name.startswith("net:")]) == 3  # the switch and two hosts were there
    assert still_there(world) == set()
    assert own_world() == before
    late = hosts(2, late=[1])
    hidden = (late[1].folder / "etc").rename(tmp_path / "hidden")
    with pytest.raises(RuntimeError, match="hold-host h1 "):
        late[1].start()
    hidden.rename(late[1].folder / "etc")
    late[1].start()
    assert reaches_itself(late[1])


def test_nothing_is_left_of_a_crash(tmp_path: Path) -> None:
    reason = missing()
    if reason:
        pytest.skip(reason)
    code = """
    import os, pathlib, signal, sys
    from testbench.hosts import Hosts
    from testbench.hosts.world import world_of
    cluster = Hosts(2, pathlib.Path(sys.argv[1])).open()
    inside = cluster[0].popen(sys.argv[2:], stdout=sys.stderr)
    print(*world_of(cluster), f"/proc/{inside.pid}", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path), *SLEEPER]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    world = set(done.stdout.split())
    assert len(world) > 10
    wait_until(lambda: not still_there(world), "what the crash has left stays")


def test_a_test_that_leaves_a_process_fails(tmp_path: Path) -> None:
    reason = missing()
    if reason:
        pytest.skip(reason)
    (tmp_path / "test_leaves.py").write_text(
        "import subprocess\n"
        "def test_leaves(hosts):\n    hosts(1)[0].popen(['sleep', '600'], stdout=subprocess.DEVNULL)\n"
        "def test_ends(hosts):\n    with hosts(1)[0].popen(['sleep', '600']) as process:\n        process.kill()\n"
    )
    # A folder of its own: in the one that all share, a pytest that ends also clears away what earlier runs have left, however much.
    options = ("-p", "no:cacheprovider", "-p", "cluster.conftest", f"--basetemp={tmp_path / 'inner'}")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *options, "test_leaves.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests")},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert re.search(r"processes are left behind: h0: \d+ \(\w\) sleep 600", done.stdout), done.stdout
    assert "2 passed, 1 error" in done.stdout


# For people


def for_people(*words: str) -> subprocess.Popen[str]:
    reason = missing()
    if reason:
        pytest.skip(reason)
    command = [sys.executable, "-m", "testbench.hosts", *words]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=ROOT, text=True, preexec_fn=as_from_a_terminal, **pipes)


def shown(process: subprocess.Popen[str]) -> list[str]:
    lines = []
    for line in process.stdout:
        lines.append(line.strip())
        if line.startswith("Press Enter, "):
            break
    return lines


def test_what_is_shown_works() -> None:
    with for_people("2") as process:
        lines = shown(process)
        enter = [line.partition("#")[0] for line in lines if "#" in line]
        assert len(enter) == 2
        for index, line in enumerate(enter):
            words = [*shlex.split(line), "sh", "-c", "hostname; cut -d: -f3 /proc/self/cgroup | sort -u; exit 9"]
            done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
            assert (done.returncode, done.stdout.splitlines()[0]) == (9, f"h{index}"), done.stderr
        job = lines[lines.index("A job over all of them:") + 2 : -2]
        done = subprocess.run("\n".join(job), shell=True, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        for rank in range(2):
            (said,) = re.findall(rf"^\[rank {rank}\] (.*)$", done.stdout, re.MULTILINE)
            assert json.loads(said)["env"]["MASTER_ADDR"] == "h0"
        holders = [int(shlex.split(line)[3]) for line in enter]
        assert process.communicate("\n", timeout=DEADLINE_S) == ("ending the hosts\n", "")
        assert process.returncode == 0
    assert not [pid for pid in holders if os.path.exists(f"/proc/{pid}")]


def test_a_job_of_msrun_is_shown() -> None:
    """The message of `ranklaunch simulate` names this way. tests/launchers/test_msrun.py runs such jobs."""
    with for_people("2", "msrun") as process:
        lines = shown(process)
        job = lines[lines.index("A job over all of them:") + 2 : -2]
        for node, line in enumerate(job[:2]):
            assert f" --nodes 2 --node {node} --master-addr h0 --slots 1 --method msrun " in line
            words = shlex.split(line)
            program = words[words.index("--") + 1]
            assert Path(program).name == "msrun_digits.py"
            assert (ROOT / program).is_file()
        process.communicate("\n", timeout=DEADLINE_S)


def test_a_signal_ends_them() -> None:
    number, code = signal.SIGTERM, 143
    with for_people("1") as process:
        holder = int(shlex.split(next(line for line in shown(process) if "#" in line))[3])
        assert os.path.exists(f"/proc/{holder}")
        process.send_signal(number)
        assert process.wait(DEADLINE_S) == code
        assert process.stderr.read() == ""
    assert not os.path.exists(f"/proc/{holder}")


def test_wrong_numbers_are_refused() -> None:
    for words in (("200",), ("many",), ("2", "mpi"), ("2", "msrun", "x")):
        with for_people(*words) as process:
            assert "usage: python -m testbench.hosts" in process.communicate(timeout=DEADLINE_S)[1]
            assert process.returncode == 2


def test_they_are_there_at_once(hosts: MakeHosts) -> None:
    before = time.monotonic()
    hosts(3)
    assert time.monotonic() - before < 5  # about 0.1 s on a machine with nothing else to do
