"""Quantities in Kubernetes' form."""

from __future__ import annotations

import math

MEBI, GIBI = 2**20, 2**30  # bytes; GB of SkyPilot and dstack is GIBI

_FACTORS = {
    "": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "m": 1e-3,
}  # fmt: skip


def in_units(quantity: str, unit: int) -> int:
    """Return a quantity in units, rounded up. unit: bytes of one."""
    number = quantity.rstrip("kKMGTPim")
    return math.ceil(float(number) * _FACTORS.get(quantity[len(number) :], 1) / unit)
