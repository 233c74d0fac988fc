"""Hosts for people: `python -m testbench.hosts 3` starts three and shows how to enter them."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from testbench.hosts import Hosts, kernel, missing
from testbench.places import child


def main(argv: Sequence[str]) -> int:
    reason = missing()
    if reason or len(argv) > 1 or not all(word.isdigit() and 0 < int(word) < 200 for word in argv):
        print(reason or "usage: python -m testbench.hosts [number of hosts, below 200]", file=sys.stderr)
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
    program = shlex.join(["--python", sys.executable, "--", os.path.relpath(child("environment.py"))])
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
