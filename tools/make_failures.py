"""Makes the failures of tests/corpus/failures.toml happen, and keeps what they print in tests/corpus/made: outputs whose label is certain,
because it is known what was done.

`tools/make_failures.py [NAME...]`; without names, all. What the tools print differs with their versions, so it is made once and kept.
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
    """name: FAMILY-NAME. script: of a shell, in an empty folder; python is this one."""

    name: str
    kind: str
    says: str
    script: str


def make(failure: Failure) -> str:
    """What came of it: the name, and whether it says what it should."""
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
            return f"{failure.name}: it takes too long"
        said = _neutral(done.stdout.decode(errors="replace"), folder)
    if failure.says not in said or not done.returncode:
        return f"{failure.name}: {done.returncode}, without {failure.says!r}:\n{said[-1500:]}"
    head = f"source: tools/make_failures.py\nfamily: {failure.name.partition('-')[0]}\nkind: {failure.kind}\nsays: {failure.says}\n"
    (FOLDER / f"{failure.name}.txt").write_text(f"{head}exit: {done.returncode}\n\n{said}", encoding="utf-8")
    return ""


def _neutral(said: str, folder: str) -> str:
    for real, shown in ((folder, "/work"), (str(Path(sys.executable).parent.parent), "/opt/venv"), (sys.base_prefix, "/usr")):
        said = said.replace(real, shown)
    said = re.sub(r"/\S*/site-packages/", "/opt/venv/lib/python3/site-packages/", said)
    lines = [line[:400] for line in said.splitlines() if line.strip()]
    return "\n".join(lines if len(lines) <= MOST_LINES else [*lines[: MOST_LINES // 4], *lines[-MOST_LINES * 3 // 4 :]]) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="of failures")
    names = parser.parse_args().names
    failures = [Failure(**fields) for fields in tomllib.loads(FAILURES.read_text(encoding="utf-8"))["failure"]]
    chosen = [failure for failure in failures if not names or failure.name in names]
    FOLDER.mkdir(exist_ok=True)
    with ThreadPoolExecutor(2) as pool:
        missed = [said for said in pool.map(make, chosen) if said]
    print("\n".join([*missed, f"{len(chosen) - len(missed)} of {len(chosen)} made"]))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
