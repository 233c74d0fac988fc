"""MindSpore's own fault recovery, one part of which (ARF) has no effect under ranklaunch."""

from __future__ import annotations

import re

VARIABLE = "MS_ENABLE_TFT"
_ARF = r"\bARF\b(?![\"']?\s*:\s*0)"  # in {TTP:1,UCE:1,ARF:1}


def problem(text: str) -> str:
    """Return the warning about ARF in the text of MS_ENABLE_TFT, "" without ARF.

    ARF needs the other ranks alive. Source: MindSpore's page on high availability.
    """
    if not re.search(_ARF, text):
        return ""
    return (
        f"{VARIABLE} has ARF, with which live ranks wait for the restart of a failed rank, but "
        "ranklaunch stops all ranks at the first failure, so ARF has no effect: remove it and let all "
        "ranks restart (RANKLAUNCH_MAX_RESTARTS), or let MindCluster's taskd start the ranks in place "
        "of ranklaunch"
    )
