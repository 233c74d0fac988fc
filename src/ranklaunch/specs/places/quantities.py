"""Quantities as Kubernetes writes them."""

from __future__ import annotations

_FACTORS = {
    "": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "m": 1e-3,
}  # fmt: skip


def bytes_of(quantity: str) -> float:
    number = quantity.rstrip("kKMGTPim")
    return float(number) * _FACTORS.get(quantity[len(number) :], 1)
