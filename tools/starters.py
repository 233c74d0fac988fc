"""Writes adapters/launchers/shared/starter_rows.py: the rows of starters.toml in the form that every Python reads fast."""

from __future__ import annotations

import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = Path(__file__).resolve().parent.parent / "adapters" / "launchers"
PATH = FOLDER / "shared" / "starter_rows.py"
HEAD = '''"""The rows of starters.toml. tools/starters.py writes this file (make generate)."""

from __future__ import annotations

# fmt: off
ROWS: tuple[dict[str, object], ...] = (
'''


def main() -> int:
    PATH.write_text(made(), encoding="utf-8")
    return 0


def made() -> str:
    rows = tomllib.loads((FOLDER / "starters.toml").read_text(encoding="utf-8"))["starter"]
    return HEAD + "".join(_row(row) for row in rows) + ")\n"


def _row(row: dict[str, object]) -> str:
    lines = [f"        {_text(name)}: {_text(value)},\n" for name, value in row.items()]
    return "    {\n" + "".join(lines) + "    },\n"


def _text(value: object) -> str:
    if isinstance(value, list):
        return "(\n" + "".join(f"            {_text(each)},\n" for each in value) + "        )"
    return f'"{value}"' if isinstance(value, str) else repr(value)


if __name__ == "__main__":
    sys.exit(main())
