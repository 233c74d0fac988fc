"""scikit-learn's handwritten digits, out of its own file: to import scikit-learn for it takes each rank longer than to learn them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np


def load_digits() -> tuple[np.ndarray, np.ndarray]:
    """As sklearn.datasets.load_digits(return_X_y=True) has it: 1797 rows of 8 x 8 numbers from 0 to 16, and which digit each is."""
    package = importlib.util.find_spec("sklearn")
    if not package or not package.submodule_search_locations:
        msg = "scikit-learn is not installed, which has the digits to learn: pip install scikit-learn"
        raise SystemExit(msg)
    rows = np.loadtxt(Path(package.submodule_search_locations[0], "datasets", "data", "digits.csv.gz"), delimiter=",")
    return rows[:, :-1], rows[:, -1].astype(int)
