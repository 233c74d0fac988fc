"""Where platforms put rank tables, and reading one from there."""

from __future__ import annotations

from ranklaunch.errors import ConfigError
from ranklaunch.files import Files, join
from ranklaunch.ranktable.model import NotReadyError, RankTable
from ranklaunch.ranktable.read import parse

MOST_BYTES = 256 * 1024 * 1024
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


def load(path: str, files: Files) -> RankTable:
    """Raises NotReadyError while waiting may help, ConfigError (every defect at once) when it cannot."""
    try:
        text = files.text(path, MOST_BYTES)
    except UnicodeDecodeError as error:
        msg = f"not UTF-8 text (half-written?): {error.reason} at byte {error.start}"
        raise NotReadyError(msg) from None
    except ValueError as error:
        msg = f"rank table {path}: {error}"
        raise ConfigError(msg) from None
    if text is None:
        msg = "no such file"
        raise NotReadyError(msg)
    return parse(text, path)
