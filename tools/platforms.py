"""Write adapters/platforms/platforms.json from platforms.toml: Python before 3.11 reads no TOML."""

from __future__ import annotations

import json
import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = Path(__file__).resolve().parent.parent / "adapters" / "platforms"
PATH = FOLDER / "platforms.json"


def main() -> int:
    PATH.write_text(made(), encoding="utf-8")
    return 0


def made() -> str:
    rows = tomllib.loads((FOLDER / "platforms.toml").read_text(encoding="utf-8"))["platform"]
    return "[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n"


if __name__ == "__main__":
    sys.exit(main())
