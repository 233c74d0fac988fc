"""Where platforms put rank tables."""

from __future__ import annotations

from ranklaunch.files import Files, join

# In the folder that RANK_TABLE_FILE names: ModelArts and CCE, then MindCluster.
NAMES = ("jobstart_hccl.json", "hccl.json")
FOLDERS = ("/user/config", "/user/serverid/devindex/config")
DEFAULT_PATHS = tuple(join(folder, name) for folder, name in zip(FOLDERS, NAMES))


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
