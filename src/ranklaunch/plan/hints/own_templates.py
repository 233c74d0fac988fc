"""Hints about templates of the user that nothing uses: mostly the name is misspelt, and the shipped template is rendered silently."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from ranklaunch.errors import nearest
from ranklaunch.files import Files, join, text_of

ENDINGS = (".j2", ".jinja", ".jinja2")
MOST = 500  # entries of a folder to look at: the folder may hold anything
DEEPEST = 3  # levels of folders below it
LONGEST = 65536  # bytes of a file


def unused(folders: Iterable[str], files: Files, shipped: Collection[str]) -> Iterator[str]:
    """Yield a warning for each unused template. A template counts as used if another template of the user names it."""
    for folder in folders:
        texts = {name: text_of(files, join(folder, name), LONGEST) for name in _names(files, folder)}
        for name in texts:
            if name not in shipped and not _is_named(name, texts):
                yield f"{join(folder, name)}: no method and no other template uses a template of this name{nearest(name, shipped)}"


def _is_named(name: str, texts: Mapping[str, str]) -> bool:
    return any(name in text for other, text in texts.items() if other != name)


def _names(files: Files, folder: str) -> Iterator[str]:
    remaining = MOST
    waiting = [""]
    while waiting and remaining > 0:
        within = waiting.pop()
        names = files.names(join(folder, within) if within else folder)[:remaining]
        remaining -= len(names)
        visible = (name for name in names if not name.startswith("."))  # Kubernetes puts hidden folders beside a ConfigMap's files
        for path in (join(within, name) for name in visible):
            if path.endswith(ENDINGS):
                yield path
            elif path.count("/") < DEEPEST and files.is_dir(join(folder, path)):
                waiting.append(path)
