"""Write src/ranklaunch/catalogue/known.json: the entries of catalogue/*.toml in the order in which they are tried.

JSON, because every Python reads it fast. Fields of ranklaunch.catalogue.entry.KnownError that have their default are left out.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from ranklaunch.catalogue.entry import STANDINGS, KnownError, of_family
from ranklaunch.catalogue.known import ordered

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "catalogue"
PATH = ROOT / "src" / "ranklaunch" / "catalogue" / "known.json"
# The order in which families are tried on a line: those nearest to the hardware are the most specific.
FAMILIES = (
    "hccl",
    "ascend",
    "cuda",
    "nccl",
    "gloo",
    "mpi",
    "torch",
    "mindspore",
    "tensorflow",
    "jax",
    "slurm",
    "storage",
    "kernel",
    "system",
    "python",
    "general",
)


def main() -> int:
    PATH.write_text(made(), encoding="utf-8")
    return 0


def made() -> str:
    entries = ordered(entry for name in FAMILIES for entry in of_family(data(name), STANDINGS))
    rows = [json.dumps(_row(entry), ensure_ascii=False) for entry in entries]
    return "[\n" + ",\n".join(rows) + "\n]\n"


def data(name: str) -> dict[str, Any]:
    return tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))


def by_family() -> dict[str, list[KnownError]]:
    """Return the entries of each family, in the order of its file."""
    return {found["family"]: of_family(found, STANDINGS) for found in map(data, FAMILIES)}


def examples() -> dict[str, list[str]]:
    """Return the example lines of each entry, by its name."""
    return {entry["name"]: entry.get("examples", []) for name in FAMILIES for entry in data(name)["entry"]}


def _row(entry: KnownError) -> dict[str, Any]:
    usual = KnownError._field_defaults
    return {name: value for name, value in entry._asdict().items() if name not in usual or value != usual[name]}


if __name__ == "__main__":
    sys.exit(main())
