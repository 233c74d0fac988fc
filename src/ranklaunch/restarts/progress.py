"""How far a training has come, by the markers that trainers leave beside their checkpoints. Pure: names and texts go in.

- latest_checkpointed_iteration.txt (Megatron): the iteration, or the word release;
- latest (DeepSpeed): the folder's name, global_step1000;
- checkpoint-1000 (Hugging Face), step_1000, iter_0001000, epoch=3-step=1000.ckpt: the name itself.
"""

from __future__ import annotations

import re

MOST_BYTES = 4096  # of a marker
_IN_NAME = re.compile(r"(?:checkpoint|global_?step|step|iter|iteration|ckpt)[-_=]?(\d{1,15})(?!\d)", re.IGNORECASE)
_UNFINISHED = re.compile(r"(?i)^\.?te?mp[-_.]|[-_.~]te?mp\b|\.(?:part|partial|incomplete|unfinished|inprogress|in_progress|new|swp)$|~$")
_IN_TEXT = re.compile(r"(\d{1,15})\s*$")


def of_name(path: str) -> int | None:
    """The number that the last part of a path has, where it is one of a step."""
    found = _IN_NAME.findall(_last(path))
    return int(found[-1]) if found else None


def is_unfinished(path: str) -> bool:
    """Whether it is called like what is still being written, to be renamed at the end."""
    return bool(_UNFINISHED.search(_last(path)))


def _last(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def of_text(text: str) -> int | None:
    """The number at the end of what a marker says."""
    found = _IN_TEXT.search(text[:MOST_BYTES].strip())
    return int(found[1]) if found else None
