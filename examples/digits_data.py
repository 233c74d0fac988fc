"""scikit-learn's handwritten digits, read from its file: the import of scikit-learn takes a rank longer than the training."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np


def load_digits() -> tuple[np.ndarray, np.ndarray]:
    """Return the result of sklearn.datasets.load_digits(return_X_y=True): 1797 rows of 8 x 8 numbers from 0 to 16, and their digits."""
    package = importlib.util.find_spec("sklearn")
    if not package or not package.submodule_search_locations:
        msg = "scikit-learn, which has the digits, is not installed: pip install scikit-learn"
        raise SystemExit(msg)
    rows = np.loadtxt(Path(package.submodule_search_locations[0], "datasets", "data", "digits.csv.gz"), delimiter=",")
    return rows[:, :-1], rows[:, -1].astype(int)
