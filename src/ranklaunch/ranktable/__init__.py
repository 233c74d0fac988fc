"""Rank tables: the file that tells Ascend's HCCL which device of which server has which rank.

Read: group_list ("version 0.1", what ModelArts and CCE write), 1.0, 1.2 (with super pods) and 2.0. Written: 1.0 and 1.2.
Field by field: CANN's HCCL documentation of the rank table configuration file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ranklaunch.files import Files, join

if TYPE_CHECKING:
    from ranklaunch.ranktable.model import NotReadyError, RankTable, Server, SuperPod
    from ranklaunch.ranktable.own import Container, find
    from ranklaunch.ranktable.read import load, parse
    from ranklaunch.ranktable.write import for_hccl, to_text

__all__ = [
    "DEFAULT_PATHS",
    "Container",
    "NotReadyError",
    "RankTable",
    "Server",
    "SuperPod",
    "find",
    "for_hccl",
    "load",
    "parse",
    "path_of",
    "places",
    "to_text",
]

# In the folder that RANK_TABLE_FILE names: ModelArts and CCE, then MindCluster.
NAMES = ("jobstart_hccl.json", "hccl.json")
FOLDERS = ("/user/config", "/user/serverid/devindex/config")
DEFAULT_PATHS = tuple(join(folder, name) for folder, name in zip(FOLDERS, NAMES))

_MODULES = {
    **dict.fromkeys(("NotReadyError", "RankTable", "Server", "SuperPod"), "model"),
    **dict.fromkeys(("Container", "find"), "own"),
    **dict.fromkeys(("load", "parse"), "read"),
    **dict.fromkeys(("for_hccl", "to_text"), "write"),
}


def path_of(value: str, files: Files) -> str:
    """The file that RANK_TABLE_FILE means: a file, or the folder that it is in or will be put into."""
    if not files.is_dir(value) and (value.endswith(".json") or files.exists(value)):
        return value
    paths = [join(value, name) for name in NAMES]
    wanted = NAMES[1] if value.rstrip("/") == FOLDERS[1] else NAMES[0]
    return next((path for path in paths if files.exists(path)), join(value, wanted))


def places(files: Files) -> str:
    """The first of the platforms' own places that holds a table, "" when none does."""
    return next((path for path in DEFAULT_PATHS if files.exists(path)), "")


def __getattr__(name: str) -> object:
    """What only jobs with a rank table need comes when it is asked for: most starts have none."""
    if name not in _MODULES:
        msg = f"module {__name__} has no attribute {name}"
        raise AttributeError(msg)
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
