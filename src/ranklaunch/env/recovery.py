"""MindSpore's own recovery of faults, of which one part does nothing under ranklaunch."""

from __future__ import annotations

import re

VARIABLE = "MS_ENABLE_TFT"
_ARF = r"\bARF\b(?![\"']?\s*:\s*0)"  # in {TTP:1,UCE:1,ARF:1}


def problem(text: str) -> str:
    """Return the warning about ARF, "" without ARF.

    Source: MindSpore's page on high availability. ARF needs the other ranks alive.
    """
    if not re.search(_ARF, text):
        return ""
    return (
        f"{VARIABLE} has ARF, by which the ranks that live wait until a failed one "
        "is started anew: ranklaunch ends all ranks at the first failure, so ARF does nothing here: "
        "take it out and let all ranks start anew (RANKLAUNCH_MAX_RESTARTS), or let MindCluster's "
        "taskd start the ranks in place of ranklaunch"
    )
