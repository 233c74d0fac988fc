"""A softmax regression learns scikit-learn's handwritten digits with NumPy, one actor of Ray for each slot of each node: method ray.

    ranklaunch simulate --nodes 2 --slots 2 --method ray -- examples/ray_digits.py --checkpoint digits.npz

This program runs once, on node 0. The actors compute gradients on their share of each batch. It resumes after the last finished epoch.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np
import ray
from softmax import CLASSES, accuracy, load_data, loss_and_gradients


@ray.remote(num_cpus=1)
class Worker:
    """Actor that computes gradients on its images."""

    def __init__(self, images: np.ndarray, labels: np.ndarray) -> None:
        self._images, self._labels = images, labels

    def gradients(self, weights: np.ndarray, batch: np.ndarray) -> tuple[float, np.ndarray]:
        return loss_and_gradients(weights, self._images[batch], self._labels[batch])


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on digits, with actors of Ray.", allow_abbrev=False)
    parser.add_argument("--epochs", type=int, default=5, help="more than are in the checkpoint")
    parser.add_argument("--batch_size", type=int, default=32, help="images per step and actor")
    parser.add_argument("--lr", type=float, default=0.5)
    parser.add_argument("--checkpoint", type=Path, default=Path("digits.npz"), help="read at the start if it is there")
    options, unknown = parser.parse_known_args()  # platforms add arguments of their own
    ray.init()  # at RAY_ADDRESS
    actors = int(ray.cluster_resources()["CPU"])
    print(f"{actors} actors on {len(ray.nodes())} nodes; ignored arguments: {unknown}", flush=True)
    train(options, actors)


def train(options: argparse.Namespace, actors: int) -> None:
    (images, labels), test_set = load_data()
    shared = ray.put(images), ray.put(labels)
    workers = [Worker.remote(*shared) for _ in range(actors)]
    weights, begun = resume(options.checkpoint, images.shape[1])
    last = begun + options.epochs
    for epoch in range(begun, last):
        started = time.monotonic()
        losses = []
        for batch in batches(len(labels), options.batch_size * actors, seed=epoch + 1):
            shares = np.array_split(batch, actors)
            results = ray.get([worker.gradients.remote(weights, share) for worker, share in zip(workers, shares)])
            weights = weights - options.lr * np.mean([gradients for _, gradients in results], axis=0)
            losses += [loss for loss, _ in results]
        print(f"epoch {epoch + 1}/{last}  loss {np.mean(losses):.4f}  {time.monotonic() - started:.1f} s", flush=True)
        print(f"epoch {epoch + 1}/{last}  test accuracy {100 * accuracy(weights, *test_set):.1f}%", flush=True)
        save(options.checkpoint, weights, epoch + 1)


def batches(images: int, size: int, seed: int) -> np.ndarray:
    """Return indices, a row per batch: another shuffle in each epoch."""
    order = np.random.default_rng(seed).permutation(images)
    return order[: images // size * size].reshape(-1, size)


def resume(path: Path, inputs: int) -> tuple[np.ndarray, int]:
    """Return the weights to start with, and the number of epochs that they were trained for."""
    if not path.exists():
        return np.zeros((inputs, CLASSES)), 0
    with np.load(path) as checkpoint:
        weights, epochs = checkpoint["weights"], int(checkpoint["epochs"])
    print(f"resumed from {path} after epoch {epochs}", flush=True)
    return weights, epochs


def save(path: Path, weights: np.ndarray, epochs: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".tmp")
    with open(unfinished, "wb") as file:
        np.savez(file, weights=weights, epochs=epochs)
    os.replace(unfinished, path)  # atomic: the old or the new checkpoint is always complete


if __name__ == "__main__":
    main()
