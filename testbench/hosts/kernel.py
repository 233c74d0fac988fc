"""Kernel interface of hosts: namespaces, mounts, memory groups, and the small programs that run in them.

Hosts leave no named objects on the machine: no entry in /run/netns, no link in the machine's own network. A namespace lasts as long as the
process that holds it, and that process ends when the pipe from its maker closes. So a crashed test run leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import re
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator

NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWPID, NEWNET = 0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x20000000, 0x40000000
MS_BIND, MS_MOVE, MS_REC, MS_PRIVATE, MS_SLAVE, MS_SHARED = 0x1000, 0x2000, 0x4000, 1 << 18, 1 << 19, 1 << 20
PR_SET_PDEATHSIG = 1
NS_GET_PARENT = 0xB702

PROGRAM = (sys.executable, "-I", "-S", os.path.abspath(__file__))
DEADLINE_S = 60.0

_libc = ctypes.CDLL(None, use_errno=True)


def _call(function: str, *words: object) -> None:
    if getattr(_libc, function)(*words) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{function}{words}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    _call("unshare", flags)


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    _call("mount", source.encode(), target.encode(), kind.encode() or None, ctypes.c_ulong(flags), options.encode() or None)


def die_with_parent() -> None:
    _call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def read(path: str) -> str:
    """Return the text of a file; "" if it cannot be read, as processes and groups come and go."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


# Joining


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY)
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def children_join(holder: int) -> Iterator[None]:
    """Start children of this thread in the holder's process namespace during the block.

    They stay children of this process without a program in between, so signals and exit codes are the program's own.
    """
    with _opened("/proc/thread-self/ns/pid") as own, _opened(f"/proc/{holder}/ns/pid") as theirs:
        _call("setns", theirs, NEWPID)
        try:
            yield
        finally:
            _call("setns", own, NEWPID)


def join(holder: int, folder: str) -> None:
    """Move this process, started in children_join, into the holder's memory group and other namespaces."""
    group = memory_group(holder)
    if group:
        write(f"{group}/cgroup.procs", "0")
    _join(holder, "net", "uts", "ipc", "cgroup", "mnt")
    os.chdir(folder)


def join_network(holder: int) -> None:
    _join(holder, "net")


def _join(holder: int, *names: str) -> None:
    with contextlib.ExitStack() as stack:
        # All are opened first: after the new mounts, /proc has other pids.
        for fd in [stack.enter_context(_opened(f"/proc/{holder}/ns/{name}")) for name in names]:
            _call("setns", fd, 0)


def is_below(pid: int, namespace: int) -> bool:
    """True if a process is in the process namespace with this inode, or in one inside it."""
    try:
        fd = os.open(f"/proc/{pid}/ns/pid", os.O_RDONLY)
    except OSError:
        return False
    while os.fstat(fd).st_ino != namespace:
        try:
            parent = fcntl.ioctl(fd, NS_GET_PARENT)
        except PermissionError:  # the parent is above our own namespace
            return False
        finally:
            os.close(fd)
        fd = parent
    os.close(fd)
    return True


# Memory groups

# cgroup versions 1 and 2: mount point, line in /proc/PID/cgroup, and a file that exists only with the memory controller.
HIERARCHIES = (
    ("/sys/fs/cgroup/memory", r"^[0-9]+:[^:]*\bmemory\b[^:]*:(.*)$", "memory.limit_in_bytes"),
    ("/sys/fs/cgroup", r"^0::(.*)$", "memory.max"),
)


def make_group(name: str) -> str:
    """Make a memory group below our own, else below the top. Return its path; "" if the machine allows neither."""
    for top, line, limit in HIERARCHIES:
        own = re.search(line, read("/proc/self/cgroup"), re.MULTILINE)
        for parent in (top + own[1].rstrip("/"), top) if own else ():
            try:
                _make_folder(f"{parent}/{name}")
            except OSError:
                continue
            if not os.path.exists(f"{parent}/{name}/{limit}"):
                with contextlib.suppress(OSError):
                    write(f"{parent}/cgroup.subtree_control", "+memory")
            if os.path.exists(f"{parent}/{name}/{limit}"):
                return f"{parent}/{name}"
            os.rmdir(f"{parent}/{name}")
    return ""


def _make_folder(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.rmdir(path)  # left by a crashed run whose process had the same pid
    os.mkdir(path)


def memory_group(pid: int) -> str:
    """Return the folder of a process's memory group; "" if make_group did not make it."""
    for top, line, limit in HIERARCHIES:
        match = re.search(line, read(f"/proc/{pid}/cgroup"), re.MULTILINE)
        if match:
            name = os.path.basename(match[1])
            for folder in (top + match[1], f"{top}/{name}"):
                if name.startswith("ranklaunch-hosts-") and os.path.exists(f"{folder}/{limit}"):
                    return folder
    return ""


def _remove_group(path: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while os.path.exists(path) and time.monotonic() < deadline:
        try:
            os.rmdir(path)
        except OSError:  # its last process is still exiting
            time.sleep(0.01)


# Programs


def hold_host(name: str, folder: str, group_name: str) -> int:
    """Run a host: a child as its PID 1, which reaps; this process stays outside and removes the memory group at the end."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    group = make_group(group_name)
    try:
        unshare(NEWPID)
        child = os.fork()
        if not child:
            _run_in_child(_be_host, name, folder, group)
        os.write(1, f"{child} {group}\n".encode())
        os.close(1)
        os.waitpid(child, 0)
    finally:
        if group:
            _remove_group(group)
    return 0


def _run_in_child(function: object, *words: object) -> None:
    """Call a function in a forked child and exit, with 127 and a message after an error. Never returns into the parent's code."""
    try:
        function(*words)  # type: ignore[operator]
        os._exit(0)
    except BaseException as error:
        os.write(2, f"{error}\n".encode())
        os._exit(127)


def _be_host(name: str, folder: str, group: str) -> None:
    die_with_parent()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps
    with contextlib.suppress(OSError):
        write("/proc/self/oom_score_adj", "-1000")  # the OOM killer's last choice
    if group:
        write(f"{group}/cgroup.procs", "0")
    unshare(NEWNET | NEWNS | NEWUTS | NEWIPC | NEWCGROUP)
    socket.sethostname(name)
    mount("none", "/", flags=MS_REC | MS_PRIVATE)
    mount("proc", "/proc", "proc")
    _mount_sys(f"{folder}/cgroup", group)
    for file in sorted(os.listdir(f"{folder}/etc")):
        if os.path.exists(f"/etc/{file}"):
            mount(f"{folder}/etc/{file}", f"/etc/{file}", flags=MS_BIND)
    mount("none", "/", flags=MS_REC | MS_SHARED)  # so that a container inside sees later mounts
    os.write(1, b"ready\n")
    os.close(1)
    _wait_for_end_of_input()


def _mount_sys(stash: str, group: str) -> None:
    """Mount /sys anew, with the host's links. As in a container, the host's own memory group is the top."""
    mount("/sys/fs/cgroup", stash, flags=MS_BIND | MS_REC)
    mount("sysfs", "/sys", "sysfs")
    mount(stash, "/sys/fs/cgroup", flags=MS_MOVE)
    for top, _, limit in HIERARCHIES:
        if group and os.path.exists(f"{group}/{limit}"):
            mount(group, top, flags=MS_BIND)


def _wait_for_end_of_input() -> None:
    while os.read(0, 4096):
        pass


def hold_switch() -> int:
    """Hold a network for the bridge and one end of each host's cable."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    unshare(NEWNET)
    for which in ("all", "default"):
        with contextlib.suppress(OSError):
            write(f"/proc/sys/net/ipv6/conf/{which}/disable_ipv6", "1")
    os.write(1, f"{os.getpid()} \nready\n".encode())
    os.close(1)
    _wait_for_end_of_input()
    return 0


def as_pid_1(*command: str) -> int:
    """Run a command as PID 1 of a process namespace inside the host, like the ENTRYPOINT of a container."""
    unshare(NEWPID | NEWNS)
    return _end_like(_status_of_child(_be_pid_1, *command))


def _be_pid_1(*command: str) -> None:
    die_with_parent()
    mount("none", "/", flags=MS_REC | MS_SLAVE)
    mount("proc", "/proc", "proc")
    os.execvp(command[0], command)


def enter(holder: str, *command: str) -> int:
    """Run a command in a host, by hand; a shell without one."""
    in_front = os.isatty(0) and os.tcgetpgrp(0) == os.getpgrp()  # a background job (&) must not take the terminal
    with children_join(int(holder)):
        status = _status_of_child(_enter, int(holder), in_front, *(command or ("bash",)))
    if in_front:
        _take_terminal()
    return _end_like(status)


def _enter(holder: int, in_front: bool, *command: str) -> None:
    die_with_parent()
    join(holder, os.getcwd())
    # A process group from outside has the number 0 inside, and kill(0) would reach processes outside.
    if in_front:
        os.setpgid(0, 0)
        _take_terminal()
    else:
        os.setsid()
    os.execvp(command[0], command)


def _take_terminal() -> None:
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
    os.tcsetpgrp(0, os.getpgrp())
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


FORWARDED = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT, signal.SIGWINCH}


def _status_of_child(function: object, *words: object) -> int:
    """Run a function in a child, forward signals to it until it ends, and return its wait status."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED | {signal.SIGCHLD})
    child = os.fork()
    if not child:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Python's own handler
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        _run_in_child(function, *words)
    return _forward(child)


def _forward(child: int) -> int:
    while True:
        info = signal.sigwaitinfo(FORWARDED | {signal.SIGCHLD})
        if info.si_signo == signal.SIGCHLD:
            pid, status = os.waitpid(child, os.WNOHANG | os.WUNTRACED)
            if pid and not os.WIFSTOPPED(status):
                return status
            if pid:  # stopped: no process here would continue it
                os.kill(child, signal.SIGCONT)
        elif info.si_code <= 0:  # signals of the terminal have reached the child already
            os.kill(child, info.si_signo)


def _end_like(status: int) -> int:
    if os.WIFEXITED(status):
        return os.WEXITSTATUS(status)
    number = os.WTERMSIG(status)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    return 128 + number


PROGRAMS: dict[str, Callable[..., int]] = {"hold-host": hold_host, "hold-switch": hold_switch, "as-pid-1": as_pid_1, "enter": enter}

if __name__ == "__main__":
    sys.exit(PROGRAMS[sys.argv[1]](*sys.argv[2:]))
