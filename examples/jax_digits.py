"""A softmax regression learns scikit-learn's handwritten digits with JAX, on all devices of all nodes: method jax.

    ranklaunch simulate --nodes 2 --slots 2 --method jax -- examples/jax_digits.py --checkpoint digits.npz

jax.distributed.initialize() needs no arguments. Each process has a share of the images. It resumes after the last finished epoch.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import jax
import numpy as np
from softmax import CLASSES, accuracy, load_data


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on digits, as one process of JAX.", allow_abbrev=False)
    parser.add_argument("--epochs", type=int, default=5, help="more than are in the checkpoint")
    parser.add_argument("--batch_size", type=int, default=32, help="images per step and process")
    parser.add_argument("--lr", type=float, default=0.5)
    parser.add_argument("--checkpoint", type=Path, default=Path("digits.npz"), help="read at the start if it is there")
    options, unknown = parser.parse_known_args()  # platforms add arguments of their own
    jax.distributed.initialize()
    say(f"{jax.process_count()} processes, {jax.device_count()} devices; ignored arguments: {unknown}")
    train(options)


def train(options: argparse.Namespace) -> None:
    from jax.experimental import multihost_utils

    (images, labels), test_set = load_data()
    images = images.astype(np.float32)
    weights, begun = resume(options.checkpoint, images.shape[1])
    gradients_of = jax.jit(jax.value_and_grad(loss_of))
    for epoch in range(begun, begun + options.epochs):
        started = time.monotonic()
        losses = []
        for batch in batches_of_this_process(len(labels), options.batch_size, seed=epoch + 1):
            loss, gradients = gradients_of(weights, images[batch], labels[batch])
            mean = multihost_utils.process_allgather(np.asarray(gradients)).reshape(-1, *weights.shape).mean(axis=0)
            weights = weights - options.lr * mean
            losses.append(float(loss))
        print(f"epoch {epoch + 1}/{begun + options.epochs}  loss {np.mean(losses):.4f}  {time.monotonic() - started:.1f} s", flush=True)
        say(f"epoch {epoch + 1}/{begun + options.epochs}  test accuracy {100 * accuracy(weights, *test_set):.1f}%")
        save(options.checkpoint, weights, epoch + 1)


def loss_of(weights: jax.Array, images: jax.Array, labels: jax.Array) -> jax.Array:
    likely = jax.nn.log_softmax(images @ weights)
    return -likely[jax.numpy.arange(len(labels)), labels].mean()


def batches_of_this_process(images: int, batch_size: int, seed: int) -> np.ndarray:
    """Return indices, a row per batch: another shuffle in each epoch, the same in all processes."""
    count = jax.process_count()
    steps = images // (batch_size * count)
    order = np.random.default_rng(seed).permutation(images)
    return order[: steps * batch_size * count].reshape(steps, count, batch_size)[:, jax.process_index()]


def resume(path: Path, inputs: int) -> tuple[np.ndarray, int]:
    """Return the weights to start with, and the number of epochs that they were trained for. Process 0 alone reads the file."""
    from jax.experimental import multihost_utils

    weights, epochs = np.zeros((inputs, CLASSES), np.float32), 0
    if jax.process_index() == 0 and path.exists():
        with np.load(path) as checkpoint:
            weights, epochs = checkpoint["weights"], int(checkpoint["epochs"])
    weights, epochs = (np.asarray(each) for each in multihost_utils.broadcast_one_to_all((weights, np.array(epochs))))
    if epochs:
        say(f"resumed from {path} after epoch {int(epochs)}")
    return weights, int(epochs)


def save(path: Path, weights: np.ndarray, epochs: int) -> None:
    if jax.process_index() != 0:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".tmp")
    with open(unfinished, "wb") as file:
        np.savez(file, weights=weights, epochs=epochs)
    os.replace(unfinished, path)  # atomic: the old or the new checkpoint is always complete


def say(text: str) -> None:
    if jax.process_index() == 0:
        print(text, flush=True)


if __name__ == "__main__":
    main()
