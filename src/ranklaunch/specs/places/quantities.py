"""Quantities as Kubernetes writes them."""

from __future__ import annotations

import math

MEBI, GIBI = 2**20, 2**30  # SkyPilot and dstack call the latter GB

_FACTORS = {
    "": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "m": 1e-3,
}  # fmt: skip


def in_units(quantity: str, unit: int) -> int:
    """Return the number of units of so many bytes that hold a quantity."""
    number = quantity.rstrip("kKMGTPim")
    return math.ceil(float(number) * _FACTORS.get(quantity[len(number) :], 1) / unit)
