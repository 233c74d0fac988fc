"""Stubs of blaunch (LSF), pbsdsh and pbs_tmrsh (PBS), flux run and flux hostlist (Flux), with a daemon on each host for their tasks.

The stubs follow the documentation of these programs in command line, variables of tasks and exit code, and in nothing else. Run as
`starters.py NAME WORDS...`; the file that BATCH_STUB names describes the job.

Sources: IBM Spectrum LSF 10.1, blaunch; OpenPBS, src/cmds/pbsdsh.c, src/cmds/pbs_tmrsh.c and src/resmom/start_exec.c; Torque,
src/cmds/pbsdsh.c; flux-core, flux-run(1), flux-hostlist(1) and flux-environment(7).
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from typing import Any

PORT = 7701
Task = tuple[str, list[str], dict[str, str]]  # a host, a command, its environment


def main(name: str, words: list[str]) -> int:
    if name == "daemon":
        return Daemon().serve()
    with open(os.environ["BATCH_STUB"], encoding="utf-8") as file:
        job = json.load(file)
    return {"blaunch": blaunch, "pbsdsh": pbsdsh, "pbs_tmrsh": pbs_tmrsh, "flux": flux}[name](job, words)


# Programs for users. A task has its starter's environment (LSF, Flux), or the job's with the system's variables (PBS).


def blaunch(job: dict[str, Any], words: list[str]) -> int:
    """[-no-shell] [-z "HOST..." | HOST] COMMAND: a task on each host of -z, or on HOST, else one for each slot."""
    no_shell, words = words[0] == "-no-shell", words[words[0] == "-no-shell" :]
    if words[0] == "-z":
        hosts, command = words[1].split(), words[2:]
    elif words[0] in job["hosts"]:
        hosts, command = words[:1], words[1:]
    else:
        hosts, command = job["slots"], words
    # Like rsh, blaunch passes the words to a shell.
    argv = command if no_shell else ["sh", "-c", " ".join(command)]
    return together([(host, argv, {**os.environ, "LSF_PM_TASKID": str(i)}) for i, host in enumerate(hosts, 1)])


def pbsdsh(job: dict[str, Any], words: list[str]) -> int:
    """[-u] [--] COMMAND: a task for each line of the node file, with -u (Torque) for each host. The exit code is always 0."""
    hosts = list(dict.fromkeys(job["slots"])) if "-u" in words[:1] else job["slots"]
    command = words[1:] if words[0] in ("-u", "--") else words
    together([(host, command, _of_task(job, host, 2 + i)) for i, host in enumerate(hosts)])
    return 0


def pbs_tmrsh(job: dict[str, Any], words: list[str]) -> int:
    """HOST COMMAND: a task without a shell."""
    if "PBS_NODEFILE" not in os.environ:
        sys.stderr.write("pbs_tmrsh: cannot find PBS_NODEFILE\n")
        return 255
    return together([(words[0], words[1:], _of_task(job, words[0], os.getpid()))])


def _of_task(job: dict[str, Any], host: str, number: int) -> dict[str, str]:
    """Return the environment of a task of PBS: without the script's exports and PBS_NODEFILE."""
    own = {"PBS_NODENUM": str(list(dict.fromkeys(job["slots"])).index(host)), "PBS_TASKNUM": f"{number:08X}"}
    return {**job["environment"], **own}


def flux(job: dict[str, Any], words: list[str]) -> int:
    """run -N NODES -n TASKS [-c CORES] COMMAND, and hostlist -e -d DELIMITER local."""
    if words[0] == "hostlist":
        assert words[1:3] == ["-e", "-d"], words
        assert words[4:] == ["local"], words
        print(words[3].join(job["hosts"]))
        return 0
    assert (words[0], words[1], words[3]) == ("run", "-N", "-n"), words
    nodes, tasks, command = int(words[2]), int(words[4]), words[7 if words[5] == "-c" else 5 :]
    each = tasks // nodes
    common = {
        **os.environ,
        "FLUX_JOB_ID": "\u0192Stub1",
        "FLUX_JOB_NNODES": str(nodes),
        "FLUX_JOB_SIZE": str(tasks),
        "PMI_SIZE": str(tasks),
    }
    return together([
        (job["hosts"][rank // each], command, {
            **common, "FLUX_TASK_RANK": str(rank), "FLUX_TASK_LOCAL_ID": str(rank % each), "PMI_RANK": str(rank),
        })
        for rank in range(tasks)
    ])  # fmt: skip


def together(tasks: list[Task]) -> int:
    """Run all tasks at once. Return the highest exit code."""
    codes: list[int] = []
    threads = [threading.Thread(target=lambda task=task: codes.append(ask(*task)), daemon=True) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return max(codes)


def ask(host: str, argv: list[str], env: dict[str, str]) -> int:
    """Run a task on a host and print its output as it comes. Return its exit code."""
    with connected(host, {"argv": argv, "env": dict(env), "cwd": os.getcwd()}) as link, link.makefile("rb") as answers:
        for line in answers:
            answer = json.loads(line)
            if "end" in answer:
                return int(answer["end"])
            os.write(1, bytes.fromhex(answer["out"]))
    return 255


def connected(host: str, asked: dict[str, Any]) -> socket.socket:
    link = socket.create_connection((host, PORT), 60)
    link.settimeout(None)
    link.sendall(json.dumps(asked).encode() + b"\n")
    return link


class Daemon:
    """Daemon on each host. It kills a task when the client disconnects, and signals all tasks on request."""

    def __init__(self) -> None:
        self._running: set[int] = set()

    def serve(self) -> int:
        with socket.create_server(("", PORT), backlog=64) as server:
            print("ready", flush=True)
            while True:
                link, _ = server.accept()
                threading.Thread(target=self._answer, args=(link,), daemon=True).start()

    def _answer(self, link: socket.socket) -> None:
        with link, link.makefile("rb") as requests:
            asked = json.loads(requests.readline())
            if "signal" in asked:
                for pid in [*self._running]:
                    send(pid, asked["signal"])
                link.sendall(json.dumps({"end": len(self._running)}).encode() + b"\n")
            else:
                self._run(link, asked)

    def _run(self, link: socket.socket, asked: dict[str, Any]) -> None:
        env = {**os.environ, **asked["env"], "HOSTNAME": socket.gethostname()}
        with subprocess.Popen(
            asked["argv"], env=env, cwd=asked["cwd"], start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as task:  # fmt: skip
            self._running.add(task.pid)
            try:
                self._follow(link, task)
                code = task.wait()
                link.sendall(json.dumps({"end": 128 - code if code < 0 else code}).encode() + b"\n")
            except OSError:  # the client has disconnected
                send(task.pid, signal.SIGKILL)
            finally:
                self._running.discard(task.pid)

    def _follow(self, link: socket.socket, task: subprocess.Popen[bytes]) -> None:
        assert task.stdout
        while True:
            readable: list[Any] = [link, task.stdout]
            ready, _, _ = select.select(readable, [], [])
            if link in ready:
                raise OSError
            block = os.read(task.stdout.fileno(), 65536)
            if not block:
                return
            link.sendall(json.dumps({"out": block.hex()}).encode() + b"\n")


def send(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        pass


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
