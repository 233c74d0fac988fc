"""Makes the failures in the tables beside it happen, and writes what they print: `make.py judged3 NAME...` (all without names).

Each runs as root in namespaces of its own, as node-1, with its own loopback, /dev/shm and process ids, and is ended with them. `bin`
names the folder of the Python that runs it, before the PATH. A table is TOML, so this needs Python 3.11.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import tomllib

HERE = Path(__file__).resolve().parent
BEFORE = """
exec 2>&1 </dev/null
hostname node-1
printf '127.0.0.1 localhost node-1\\n10.0.0.2 node-2\\n10.0.0.3 node-3\\n' >.hosts
mount --bind .hosts /etc/hosts
mount -t tmpfs tmpfs /dev/shm
ip link set lo up
export HOME=$PWD
"""
LINES, WIDTH = 100, 1500
MARK = "%%% "  # begins each of several tails that a job prints, with its name


def output(job: str, folder: str, begin: str, limit: float) -> str:
    """What a job prints, in a folder that is its own."""
    work = Path(tempfile.mkdtemp(prefix="job"))
    try:
        (work / ".job").write_text(job)
        environment = {"LANG": "C.UTF-8", "PATH": f"{folder}:{os.environ['PATH']}"}
        apart = ["unshare", "--mount", "--uts", "--net", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]
        command = [*apart, "bash", "-c", BEFORE + begin + "\nexec bash .job"]
        with (work / ".out").open("wb") as out:
            child = subprocess.Popen(command, cwd=work, env=environment, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
            try:
                child.wait(limit)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
                print("  ended after its time", file=sys.stderr)
        return neutral((work / ".out").read_text(errors="replace"), work)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def neutral(text: str, work: Path) -> str:
    """With neutral paths, and the end of it alone."""
    text = text.replace(str(work), "/work").replace(".job: line", "job.sh: line")
    text = re.sub(r"(/[\w.-]+)+/lib/python3\.\d+/site-packages", "/opt/venv/lib/python3/site-packages", text)
    text = re.sub(r"/(work/main/\.venv|tmp/blind/v\w*)/bin", "/opt/venv/bin", text)
    text = re.sub(r"/root/\.pyenv/versions/[\d.]+", "/usr/local", text)
    first, *tails = text.replace("\x00", "").split(MARK)
    return MARK.join([tail(first), *unlike(f"{name}\n{tail(rest)}" for name, _, rest in (one.partition("\n") for one in tails))])


def unlike(tails: Iterable[str]) -> list[str]:
    """Without those that have an earlier one's words in another order."""
    kept: dict[frozenset[str], str] = {}
    for one in tails:
        kept.setdefault(frozenset(re.findall(r"[A-Za-z]+", one.partition("\n")[2])), one)
    return list(kept.values())


def tail(text: str) -> str:
    lines = [line.rstrip()[:WIDTH] for line in text.splitlines()]
    return "\n".join(lines[-LINES:]).strip("\n") + "\n"


def make(case: dict[str, str], to: Path, begin: str) -> bool:
    """One case's file; whether its output has what its label rests on."""
    folder = os.path.expandvars(str(case.get("bin", "")))
    text = output(case["run"], folder, begin, float(case.get("limit", 120)))
    family = case["name"].split("-")[0]
    said = str(case.get("says", ""))
    head = f"source: run for this corpus, tests/corpus/makers/{family}.toml\n"
    if said:
        head += f"family: {family}\nkind: {case['kind']}\nsays: {said}\nwhy: {case['why']}\n"
    good = said in text and bool(text.strip())
    (to / f"{case['name']}.txt{'' if good else '.other'}").write_text(head + "\n" + text, encoding="utf-8")
    print("made" if good else "OTHER", case["name"], flush=True)
    return good


def before(table: str) -> str:
    """What another table's cases begin with."""
    return str(tomllib.loads((HERE / f"{table}.toml").read_text(encoding="utf-8")).get("before", "")) if table else ""


def main() -> int:
    to = HERE.parent / sys.argv[1]
    wanted, done = set(sys.argv[2:]), True
    for table in sorted(HERE.glob("*.toml")):
        content = tomllib.loads(table.read_text(encoding="utf-8"))
        cases = [case for case in content["case"] if (not wanted or {case["name"], table.stem} & wanted)]
        for case in cases:
            done = make(case, to, before(case.get("after", "")) + content.get("before", "")) and done
    return 0 if done else 1


if __name__ == "__main__":
    sys.exit(main())
