"""Program that measures files and folders, for a comparison between nodes.

The user's interpreter runs this file. So it imports nothing of ranklaunch and works with Python 3.7.

Arguments: file for the outcome, paths. The outcome is JSON: for each path the number of files below it, the sum of their bytes, and a
digest of their relative names that does not depend on the order. Contents are not read. Exits with 78 if a path is missing or unreadable.
"""

import hashlib
import json
import os
import sys
from typing import Iterator, List, Tuple  # noqa: UP035 - Python 3.7


def main(argv: List[str]) -> int:  # noqa: UP006 - Python 3.7
    outcome, paths = argv[0], argv[1:]
    measured, code = {}, 0
    for path in paths:
        try:
            measured[path] = measure(path)
            print(f"{path}: {measured[path]}", flush=True)
        except OSError as error:
            where = str(error.filename).rstrip("/")
            print(f"{path}: {error.strerror}{'' if where == path else f': {where}'}", file=sys.stderr, flush=True)
            code = 78
    if not code:
        save(outcome, measured)
    return code


def measure(path: str) -> str:
    count = size = names = 0
    for name, bytes_ in [("", os.path.getsize(path))] if os.path.isfile(path) else below(path):
        count += 1
        size += bytes_
        names = (names + int.from_bytes(hashlib.sha256(os.fsencode(name)).digest()[:16], "big")) % (1 << 128)
    return f"{count} {'file' if count == 1 else 'files'}, {size} bytes, names {names:032x}"


def below(root: str) -> Iterator[Tuple[str, int]]:  # noqa: UP006 - Python 3.7
    """Yield (path below root, size) of each file. Links to folders are not followed, so that no folder is entered twice."""
    folders = [""]
    while folders:
        folder = folders.pop()
        with os.scandir(os.path.join(root, folder)) as entries:
            for entry in entries:
                name = os.path.join(folder, entry.name)
                if entry.is_dir(follow_symlinks=False):
                    folders.append(name)
                else:
                    yield name, entry.stat().st_size


def save(path: str, measured: object) -> None:
    temporary = f"{path}.{os.urandom(8).hex()}.tmp"
    with open(temporary, "x") as file:
        json.dump(measured, file)
    os.replace(temporary, path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
