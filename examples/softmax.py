"""Softmax regression on scikit-learn's handwritten digits with NumPy: data, loss and gradients, for the examples that share them."""

from __future__ import annotations

import numpy as np
from digits_data import load_digits

CLASSES = 10
TEST_IMAGES = 360

Data = tuple[np.ndarray, np.ndarray]  # images, a row each, and their labels


def load_data() -> tuple[Data, Data]:
    """Return the training set and the test set: the same in all processes, so that none trains on another's test images."""
    pixels, digits = load_digits()
    images = np.hstack([pixels / 16, np.ones((len(pixels), 1))])  # the column of ones is the bias
    order = np.random.default_rng(0).permutation(len(images))
    test, training = order[:TEST_IMAGES], order[TEST_IMAGES:]
    return (images[training], digits[training]), (images[test], digits[test])


def loss_and_gradients(weights: np.ndarray, images: np.ndarray, labels: np.ndarray) -> tuple[float, np.ndarray]:
    scores = images @ weights
    scores -= scores.max(axis=1, keepdims=True)  # exp of a large score is infinite
    likely = np.exp(scores)
    likely /= likely.sum(axis=1, keepdims=True)
    right = np.arange(len(labels)), labels
    loss = -np.log(likely[right]).mean()
    likely[right] -= 1
    return float(loss), images.T @ likely / len(labels)


def accuracy(weights: np.ndarray, images: np.ndarray, labels: np.ndarray) -> float:
    return float(np.mean((images @ weights).argmax(axis=1) == labels))
