"""Rank tables: files that give each device of each server its rank, for Ascend's HCCL.

Read: group_list ("version 0.1", from ModelArts and CCE), 1.0, 1.2 (with super pods) and 2.0. Written: 1.0 and 1.2. Field by field:
CANN's HCCL documentation of the rank table configuration file.
"""

from __future__ import annotations

from ranklaunch.ranktable.model import NotReadyError, RankTable, Server, SuperPod
from ranklaunch.ranktable.own import Container, find
from ranklaunch.ranktable.read import load, parse
from ranklaunch.ranktable.write import for_hccl, to_text

__all__ = [
    "Container", "NotReadyError", "RankTable", "Server", "SuperPod", "find", "for_hccl", "load", "parse", "to_text",
]  # fmt: skip
