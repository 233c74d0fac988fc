"""Program that runs Ray on one node until Ray ends or a signal ends both, and keeps Ray's logs.

The user's interpreter runs this file. So it imports nothing of ranklaunch and works with Python 3.7.

Arguments: file with the port of the head, folder for logs, seconds to wait for the head, address of the head ("" on the head itself), and
the command `ray start --block ...`; {port} in the last two stands for the port. Exits like the first process of Ray that ends: with its
exit code, or 128 plus the number of its signal. A last line names that process and its log.
"""

import contextlib
import ctypes
import os
import re
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time

MOST_KEPT = 64 << 20  # bytes of all logs
MOST_OF_ONE = 4 << 20  # bytes of one log
LOOK_S = 0.1
ENDS_S = 0.5  # for `ray start` to end Ray's processes after SIGTERM; a service has only a fifth of the grace
GONE_S = 2.0  # for killed processes to disappear
DRAIN = "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S"  # Ray's default of 30 s serves other nodes, but they end too
STARTED = b"Ray runtime started"  # printed when the GCS knows the node
ENDED = re.compile(r"^\s+(\w+) \[exit code=(-?\d+)", re.MULTILINE)
# `ray start` reports an ended process with the last lines of its log. Of these lines, only warnings and errors are passed on.
TAIL = re.compile(rb"----- (BEGIN|END) .{1,80} tail")
SEVERE = re.compile(rb"\[[\d\- :,]+ [WEFC] \d+ \d+\] \(")
REPORT = re.compile(rb"Some Ray subprocesses exited unexpectedly|Remaining processes will be killed| -- \w+ \[exit code=")
PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
OF_RAY = ("gcs_server", "raylet")  # if one of these dies during the start, `ray start` waits in vain, 30 s for gcs_server
stop_signals = []  # received signals that request a stop
first_death = []  # name and exit status of the process of Ray that ended during `ray start`


def main(file, kept, seconds, head, argv):
    with open(file) as text:
        port = text.read().strip()
    head, argv = head.replace("{port}", port), [word.replace("{port}", port) for word in argv]
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: stop_signals.append(number))
    if head and not await_head(head, time.monotonic() + seconds):
        return 128 + stop_signals[0] if stop_signals else 75
    folder = argv[argv.index("--temp-dir") + 1] if "--temp-dir" in argv else ""  # the user's template may leave it out
    if folder and not is_own(folder):
        print(f"{folder} is no folder of this user: remove it, or set RANKLAUNCH_RUN_DIR", flush=True)
        return 78
    os.environ.setdefault(DRAIN, "0")
    keep_orphans()
    ray = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    code = attend(ray, os.path.join(os.path.dirname(file), "ray_started"))
    end_orphans()
    code = 128 + stop_signals[0] if stop_signals else explained(folder, code, kept)
    if folder:
        keep(folder, kept)
    return code


def await_head(head, deadline):
    """Wait until the head accepts a connection. Return False at the deadline (monotonic seconds) or after a stop signal."""
    host, _, port = head.rpartition(":")
    while not stop_signals:
        try:
            socket.create_connection((host.strip("[]"), int(port)), 5).close()
            return True
        except OSError as error:
            if time.monotonic() > deadline:
                print(f"Ray's head at {head} does not answer: {error}; see Ray's output on node 0", flush=True)
                return False
        time.sleep(LOOK_S)
    return False


def is_own(folder):
    """Make the folder if missing. Return False for a link, a file, or a folder of another user."""
    with contextlib.suppress(FileExistsError):
        os.makedirs(folder, mode=0o700)
    status = os.lstat(folder)
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()


def attend(ray, started):
    """Pass on Ray's output, and a stop signal to Ray. Return the exit code of `ray start`.

    Make the file `started` once this node has joined. Kill processes that have not ended ENDS_S after the stop signal.
    """
    os.set_blocking(ray.stdout.fileno(), False)
    kill_at, rest, in_tail, before = None, b"", False, b""
    while True:
        if before is not None and not first_death:
            first_death.extend(dead_children(ray.pid)[:1])
        if (stop_signals or first_death) and kill_at is None:
            kill_at = time.monotonic() + ENDS_S + drain_s()
            ray.send_signal(signal.SIGTERM)
        if kill_at is not None and time.monotonic() > kill_at:
            kill_below(os.getpid())
        reap_orphans(ray.pid)
        try:
            piece = os.read(ray.stdout.fileno(), 65536)
        except BlockingIOError:
            piece = None
        if piece:
            lines = (rest + piece).splitlines(True)
            rest = b"" if lines[-1].endswith(b"\n") else lines.pop()
            in_tail = write(lines, in_tail)
            before = noted(before, piece, started)
        elif ray.poll() is not None:
            write([rest], in_tail)
            return ray.returncode
        elif piece is None:
            select.select([ray.stdout], [], [], LOOK_S)
        else:  # end of output
            time.sleep(LOOK_S)


def noted(before, piece, started):
    """Make the file `started` once the output reports the start of Ray. Return `before` for the next call.

    before: end of the earlier output, None once the start was reported.
    """
    if before is None:
        return None
    before = (before + piece)[-4096:]
    if STARTED not in before:
        return before
    os.close(os.open(started, os.O_WRONLY | os.O_CREAT, 0o600))
    return None


def dead_children(parent):
    """Return name and exit status (-N after signal N) of Ray's processes that are zombies: `ray start` has not reaped them.

    Sources: proc(5), /proc/PID/task/TID/children and /proc/PID/stat.
    """
    dead = []
    with contextlib.suppress(OSError, ValueError, IndexError):
        with open(f"/proc/{parent}/task/{parent}/children") as file:
            children = file.read().split()
        for pid in children:
            with open(f"/proc/{pid}/stat") as file:
                name, _, rest = file.read().partition("(")[2].rpartition(")")
            fields = rest.split()
            if fields[0] == "Z" and name in OF_RAY:
                status = int(fields[-1])
                dead.append((name, -(status & 0x7F) if status & 0x7F else status >> 8))
    return dead


def drain_s():
    """Return the seconds that Ray drains a node; 0 unless the user has set them."""
    try:
        return max(0.0, float(os.environ[DRAIN]))
    except ValueError:
        return 0.0


def write(lines, in_tail):
    """Print lines. in_tail: True if they begin within the tail of a log. Return the same for the next lines."""
    for line in lines:
        edge = TAIL.search(line)
        if edge:
            in_tail = edge.group(1) == b"BEGIN"
        elif SEVERE.match(line) or not (in_tail or REPORT.search(line)):
            sys.stdout.buffer.write(line)
    sys.stdout.flush()
    return in_tail


def keep_orphans():
    """Become the parent of orphaned descendants, so that they can be found and ended."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap_orphans(ray_pid):
    """Reap children that have ended. Stop at `ray start` itself, which subprocess reaps."""
    with contextlib.suppress(ChildProcessError):
        while True:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if not ended or ended.si_pid == ray_pid:
                return
            os.waitpid(ended.si_pid, 0)


def end_orphans():
    """Kill the workers and agents that `ray start` leaves behind, and reap them, for at most GONE_S."""
    deadline = time.monotonic() + GONE_S
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < deadline:
            kill_below(os.getpid())
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
            time.sleep(0.02)


def kill_below(root):
    """Send SIGKILL to all descendants of root: `ray start` would take a second for each process of Ray."""
    children = {}
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError), open(f"/proc/{int(name)}/stat", "rb") as file:
            children.setdefault(int(file.read().rpartition(b")")[2].split()[1]), []).append(int(name))
    descendants = children.get(root, [])
    for pid in descendants:  # the list grows during the loop
        descendants.extend(children.get(pid, []))
    for pid in descendants:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def explained(folder, code, kept):
    """Print the process of Ray that ended first, by Ray's log of exits, and return its exit code; `code` if unknown."""
    text = ""
    for logs in sessions(folder)[:1]:
        try:
            with open(os.path.join(logs, "ray_process_exit.log"), errors="replace") as file:
                text = file.read(65536)
        except OSError:
            pass
    match = ENDED.search(text)
    if not match and not first_death:
        return code
    name, status = first_death[0] if first_death else (match.group(1), int(match.group(2)))
    log = os.path.join(kept, f"{name}.out")
    print(f"{signal_name(-status)} ended Ray's {name}: {log}" if status < 0 else f"Ray's {name} ended with {status}: {log}", flush=True)
    return 128 - status if status < 0 else status or 1


def signal_name(number):
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def sessions(folder):
    """Return the log folders of Ray's sessions, the newest first."""
    try:
        folders = [entry.path for entry in os.scandir(folder or "/tmp/ray") if entry.name.startswith("session_") and not entry.is_symlink()]
    except OSError:
        return []
    return [os.path.join(path, "logs") for path in sorted(folders, reverse=True)]


def keep(folder, kept):
    """Copy the logs of the newest session, at most MOST_KEPT bytes, and remove the folder."""
    budget = MOST_KEPT
    for logs in sessions(folder)[:1]:
        for root, _, names in os.walk(logs):
            for name in sorted(names):
                budget -= copy(os.path.join(root, name), os.path.join(kept, os.path.relpath(root, logs), name), min(budget, MOST_OF_ONE))
    shutil.rmtree(folder, ignore_errors=True)


def copy(source, target, most):
    """Copy the last `most` bytes of a regular file. Return the number of bytes."""
    try:
        if os.path.islink(source) or not os.path.isfile(source):
            return 0
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(source, "rb") as file, open(target, "wb") as out:
            file.seek(max(0, os.path.getsize(source) - most))
            data = file.read(most)
            out.write(data)
        return len(data)
    except OSError:
        return 0


sys.exit(main(sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4], sys.argv[5:]))
