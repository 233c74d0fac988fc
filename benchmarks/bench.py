"""ranklaunch against its peers, in one run: `make bench`.

    python -m benchmarks.bench [--quick] [--only start,failure] [--peers mpirun,torchrun] [--out FOLDER]
    python -m benchmarks.bench --write-docs

Progress goes to standard error. At the end, a table for each section and one of the targets are on standard output, bench.json and
bench.svg in the folder. The exit code is 1 when a section could not be measured; a target that is missed does not change it.
--write-docs measures nothing: it puts the last run's tables into docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import os
import platform
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import launchers, plot, tables
from benchmarks.tables import Section

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "benchmarks.md"
SECTIONS = ("start", "front", "failure", "output", "idle", "scale", "features", "cluster")
PACKAGES = ("ranklaunch", "torch", "accelerate", "deepspeed", "horovod", "mindspore", "ray", "jax")


def main(argv: Sequence[str] | None = None) -> int:
    given = _options(argv)
    kept = given.out / "bench.json"
    if given.write_docs:
        return write_docs(kept)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is ended on the way out
    launchers.choose(given.peers)
    given.out.mkdir(parents=True, exist_ok=True)
    about, sections = machine(), []
    for name in given.only:
        sections.append(section(name, given.quick))
        kept.write_text(json.dumps(tables.as_json(about, given.quick, sections), indent=1) + "\n")
    picture(sections, given.out / "bench.svg")
    print(tables.report(about, given.quick, sections))
    return 0 if all(found.measured for found in sections) else 1


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small and once: whether it works, not how fast")
    parser.add_argument("--only", type=_some_of(SECTIONS), default=list(SECTIONS), help=f"of the sections {', '.join(SECTIONS)}")
    parser.add_argument("--peers", type=_some_of(tuple(launchers.PEERS)), default=list(launchers.PEERS), help="with which to compare")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "bench", help="folder of bench.json and bench.svg")
    parser.add_argument("--write-docs", action="store_true", help="put the results of the last run into docs/benchmarks.md")
    return parser.parse_args(argv)


def _some_of(known: Sequence[str]) -> Any:
    def read(text: str) -> list[str]:
        names = [name for name in text.split(",") if name]
        unknown = [name for name in names if name not in known]
        if unknown:
            msg = f"{', '.join(unknown)}: expected some of {','.join(known)}"
            raise argparse.ArgumentTypeError(msg)
        return [name for name in known if name in names]

    return read


def section(name: str, quick: bool) -> Section:
    print(f"section {name}", file=sys.stderr, flush=True)
    try:
        module = importlib.import_module(f"benchmarks.{name}")
    except ModuleNotFoundError as error:
        why = "it is not there yet" if error.name == f"benchmarks.{name}" else f"it needs the module {error.name}"
        return _said(Section(name, left_out=why))
    began = time.monotonic()
    try:
        rows = module.measure(quick)
        targets = module.targets(rows)
    except Exception as error:
        traceback.print_exc()
        return _said(Section(name, error=f"{type(error).__name__}: {error}"))
    if not any(row.values or row.failed for row in rows):
        return _said(Section(name, rows, left_out="what it measures is not installed, not chosen, or not possible here"))
    print(f"section {name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return Section(name, rows, targets)


def _said(found: Section) -> Section:
    print(f"section {found.name}: {found.left_out or found.error}", file=sys.stderr, flush=True)
    return found


def machine() -> dict[str, Any]:
    return {
        "cores": len(os.sched_getaffinity(0)),
        "kernel": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        **{name: found for name in PACKAGES if (found := _version(name))},
        **({"Open MPI": found} if (found := _open_mpi()) else {}),
        "load before the run": round(os.getloadavg()[0], 1),
    }


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _open_mpi() -> str:
    path = launchers.path("mpirun")
    done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60) if path else None
    return done.stdout.partition("\n")[0].split()[-1] if done and done.stdout else ""


def picture(sections: Sequence[Section], path: Path) -> None:
    try:
        plot.draw(sections, path)
    except ImportError as error:
        print(f"no {path.name}: {error}; the extra `bench` of pyproject.toml has it", file=sys.stderr, flush=True)


def write_docs(kept: Path) -> int:
    if not kept.exists():
        print(f"{kept} is not there: run the benchmarks first", file=sys.stderr)
        return 1
    data = json.loads(kept.read_text())
    text = tables.report(data["machine"], data["quick"], tables.from_json(data))
    PAGE.write_text(tables.filled(PAGE.read_text(encoding="utf-8"), text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
