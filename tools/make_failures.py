"""Cause the failures of tests/corpus/failures.toml, and store their outputs in tests/corpus/made. The label of such an output is certain.

`tools/make_failures.py [NAME...]`; without names, all. Outputs differ with the versions of the tools, so each is made once and kept.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tests" / "corpus" / "made"
FAILURES = FOLDER.with_name("failures.toml")
LONGEST_S = 120
MOST_LINES = 40


class Failure(NamedTuple):
    """A failure to cause. name: FAMILY-NAME. script: lines of bash, run in an empty folder; `python` is this Python."""

    name: str
    kind: str
    says: str
    script: str


def make(failure: Failure) -> str:
    """Run a failure and store its output. Return "", or the reason why nothing was stored."""
    with tempfile.TemporaryDirectory() as folder:
        env = {
            "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
            "HOME": folder,
            "OMP_NUM_THREADS": "1",
            "LC_ALL": "C.UTF-8",
        }
        argv = ["bash", "-c", f"exec 2>&1\n{failure.script}"]
        try:
            done = subprocess.run(argv, cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=LONGEST_S, check=False)
        except subprocess.TimeoutExpired:
            return f"{failure.name}: not finished after {LONGEST_S} s"
        output = _neutral(done.stdout.decode(errors="replace"), folder)
    if failure.says not in output or not done.returncode:
        return f"{failure.name}: exit code {done.returncode}, expected a failure with {failure.says!r} in its output:\n{output[-1500:]}"
    head = f"source: tools/make_failures.py\nfamily: {failure.name.partition('-')[0]}\nkind: {failure.kind}\nsays: {failure.says}\n"
    (FOLDER / f"{failure.name}.txt").write_text(f"{head}exit: {done.returncode}\n\n{output}", encoding="utf-8")
    return ""


def _neutral(output: str, folder: str) -> str:
    """Return an output without paths of this machine, and without the middle of a long one."""
    for real, shown in ((folder, "/work"), (str(Path(sys.executable).parent.parent), "/opt/venv"), (sys.base_prefix, "/usr")):
        output = output.replace(real, shown)
    output = re.sub(r"/\S*/site-packages/", "/opt/venv/lib/python3/site-packages/", output)
    lines = [line[:400] for line in output.splitlines() if line.strip()]
    return "\n".join(lines if len(lines) <= MOST_LINES else [*lines[: MOST_LINES // 4], *lines[-MOST_LINES * 3 // 4 :]]) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="names of failures; default: all")
    names = parser.parse_args().names
    failures = [Failure(**fields) for fields in tomllib.loads(FAILURES.read_text(encoding="utf-8"))["failure"]]
    chosen = [failure for failure in failures if not names or failure.name in names]
    FOLDER.mkdir(exist_ok=True)
    with ThreadPoolExecutor(2) as pool:
        missed = [reason for reason in pool.map(make, chosen) if reason]
    print("\n".join([*missed, f"{len(chosen) - len(missed)} of {len(chosen)} made"]))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
