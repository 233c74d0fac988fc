"""Hosts by hand: `python -m testbench.hosts 3` starts three and prints the commands to enter them and to start a job.

A method after the number (`2 msrun`) is the method of that job.
"""

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
from testbench.places import EXAMPLES, child

# Program of the job, by method.
METHODS = {"spawn": str(child("environment.py")), "msrun": str(EXAMPLES / "msrun_digits.py")}


def main(argv: Sequence[str]) -> int:
    reason = missing()
    number, method = (*argv, "3", "spawn")[:2] if len(argv) != 1 else (argv[0], "spawn")
    is_number = number.isdigit() and 0 < int(number) < 200
    if reason or len(argv) > 2 or not is_number or method not in METHODS:
        usage = f"[number of hosts, below 200] [{'|'.join(METHODS)}]"
        print(reason or f"usage: python -m testbench.hosts {usage}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with tempfile.TemporaryDirectory(prefix="ranklaunch-hosts-") as folder, Hosts(int(number), Path(folder)) as hosts:
        _print_commands(hosts, method)
        try:
            _wait_for_person()
        except KeyboardInterrupt:
            return 128 + signal.SIGINT
        finally:
            print("ending the hosts", flush=True)
    return 0


def _print_commands(hosts: Hosts, method: str) -> None:
    enter = shlex.join([sys.executable, os.path.relpath(kernel.__file__), "enter"])
    ranklaunch = shlex.quote(str(Path(sys.executable).with_name("ranklaunch")))
    print(f"{len(hosts)} hosts. A shell in one of them:\n")
    for host in hosts:
        print(f"  {enter} {host.pid}    # {host.name}, {host.address}")
    print("\nA job over all of them:\n")
    saved = ["--checkpoint", str(hosts.folder / "digits.ckpt")] if method == "msrun" else []
    words = ["--python", sys.executable, "--", os.path.relpath(METHODS[method]), *saved]
    program = shlex.join(words)
    for host in hosts:
        where = f"--nodes {len(hosts)} --node {host.index} --master-addr h0 --slots 1 --method {method}"
        print(f"  {enter} {host.pid} {ranklaunch} run {where} --log-dir {hosts.folder}/logs/{host.name} {program} &")
    print("  wait\n", flush=True)


def _wait_for_person() -> None:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        print("Press Enter, close stdin or send SIGTERM to end the hosts.", flush=True)
        sys.stdin.readline()
        return
    shell = os.environ.get("SHELL", "/bin/sh")
    print(f"This is {shell} on the machine itself. Exit it to end the hosts.", flush=True)
    subprocess.run([shell], check=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
