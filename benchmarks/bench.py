"""Comparison of ranklaunch with other launchers, all in one run: `make bench`.

    python -m benchmarks.bench [--quick] [--only start,failure] [--peers mpirun,torchrun] [--out FOLDER]
    python -m benchmarks.bench --write-docs

Progress goes to standard error. At the end, standard output has a table for each section and one table of targets; the folder has
bench.json and bench.svg. The exit code is 1 if a section could not be measured; a missed target does not change it.
--write-docs measures nothing: it writes the tables of the last run into docs/benchmarks.md.
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
    options = _options(argv)
    results = options.out / "bench.json"
    if options.write_docs:
        return write_docs(results)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the exit ends all started processes
    launchers.choose(options.peers)
    options.out.mkdir(parents=True, exist_ok=True)
    about, sections = machine(), []
    for name in options.only:
        sections.append(section(name, options.quick))
        results.write_text(json.dumps(tables.as_json(about, options.quick, sections), indent=1) + "\n")
    picture(sections, options.out / "bench.svg")
    print(tables.report(about, options.quick, sections))
    return 0 if all(each.measured for each in sections) else 1


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small jobs, one run each: a test of the benchmarks, without useful figures")
    parser.add_argument("--only", type=_some_of(SECTIONS), default=list(SECTIONS), help=f"sections to measure, of {', '.join(SECTIONS)}")
    parser.add_argument("--peers", type=_some_of(tuple(launchers.PEERS)), default=list(launchers.PEERS), help="launchers to compare")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "bench", help="folder of bench.json and bench.svg")
    parser.add_argument("--write-docs", action="store_true", help="write the results of the last run into docs/benchmarks.md")
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
        return _reported(Section(name, left_out=why))
    began = time.monotonic()
    try:
        rows = module.measure(quick)
        targets = module.targets(rows)
    except Exception as error:
        traceback.print_exc()
        return _reported(Section(name, error=f"{type(error).__name__}: {error}"))
    if not any(row.values or row.failed for row in rows):
        return _reported(Section(name, rows, left_out="its launchers are not installed, not chosen, or cannot run on this machine"))
    print(f"section {name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return Section(name, rows, targets)


def _reported(result: Section) -> Section:
    print(f"section {result.name}: {result.left_out or result.error}", file=sys.stderr, flush=True)
    return result


def machine() -> dict[str, Any]:
    return {
        "cores": len(os.sched_getaffinity(0)),
        "kernel": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        **{name: version for name in PACKAGES if (version := _version(name))},
        **({"Open MPI": version} if (version := _open_mpi()) else {}),
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
        print(f"no {path.name}: {error}; install the extra `bench` of pyproject.toml", file=sys.stderr, flush=True)


def write_docs(results: Path) -> int:
    if not results.exists():
        print(f"{results} does not exist: run the benchmarks first", file=sys.stderr)
        return 1
    data = json.loads(results.read_text())
    text = tables.report(data["machine"], data["quick"], tables.from_json(data))
    PAGE.write_text(tables.filled(PAGE.read_text(encoding="utf-8"), text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
