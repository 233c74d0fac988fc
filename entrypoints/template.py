"""ranklaunch template: print a template that ranklaunch ships, to copy from; without a name, list all names."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from ranklaunch.cli import options
from ranklaunch.errors import UsageError, nearest
from ranklaunch.render import OURS
from ranklaunch.render.templates import SHIPPED, Templates

USAGE = "ranklaunch template [NAME]"


def main(argv: list[str], env: Mapping[str, str], signals: object = None) -> int:
    parser = options.Parser("template", __doc__ or "", USAGE)
    _, names = parser.split(argv)
    if len(names) > 1:
        parser.refuse(f"{len(names)} names: expected one, or none for a list")
    known = Templates().shipped
    sys.stdout.write(_text(names[0], known) if names else "".join(f"{name}\n" for name in known))
    return 0


def _text(name: str, known: Sequence[str]) -> str:
    """Return the text of a template; for a method's name, the template of its command."""
    path = name[len(OURS) :] if name.startswith(OURS) else name
    name_of_file = next((each for each in (path, f"{path}.j2", f"{path}/command.j2") if each in known), "")
    if not name_of_file:
        msg = f"no template {name!r}{nearest(path, known)}; ranklaunch template lists them"
        raise UsageError(msg)
    with open(os.path.join(SHIPPED, name_of_file), encoding="utf-8") as file:
        return file.read()
