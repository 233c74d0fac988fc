"""A softmax regression learns scikit-learn's handwritten digits with NumPy and MPI: method mpirun.

    ranklaunch simulate --nodes 2 --slots 2 --method mpirun -- examples/mpi_digits.py --checkpoint digits.npz

MPI gives a rank its place in the job. Every rank has a share of the images, and all ranks average their gradients, so that
all take the same steps. It resumes where it was stopped, in the middle of an epoch too.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from dataclasses import asdict
from pathlib import Path
from types import FrameType

import numpy as np
from mpi4py import MPI
from progress import Progress
from softmax import CLASSES, accuracy, load_data, loss_and_gradients

COMM = MPI.COMM_WORLD


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on digits, as one rank of an MPI job.", allow_abbrev=False)
    parser.add_argument("--epochs", type=int, default=5, help="more than are in the checkpoint, unless an earlier start was interrupted")
    parser.add_argument("--save_steps", type=int, default=0, help="save after so many steps too, and not at the ends of epochs alone")
    parser.add_argument("--batch_size", type=int, default=16, help="images per step and rank")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--checkpoint", type=Path, default=Path("digits.npz"), help="read at the start if it is there")
    options, unknown = parser.parse_known_args()  # platforms add arguments of their own
    say(f"{COMM.size} ranks; ignored arguments: {unknown}")
    train(options)


def train(options: argparse.Namespace) -> None:
    stop = StopRequest()
    (images, labels), test_set = load_data()
    weights, at = resume(options.checkpoint, images.shape[1])
    at.begin(options.epochs)
    while at.epoch < at.last:
        started = time.monotonic()
        batches = batches_of_this_rank(len(labels), options.batch_size, seed=at.epoch + 1)
        losses = []
        for step in range(at.images // (options.batch_size * COMM.size), len(batches)):
            batch = batches[step]
            at.images = step * options.batch_size * COMM.size
            if stop.on_any_rank():
                save(options.checkpoint, weights, at)
                say(f"stopped in epoch {at.epoch + 1} after step {step}: the next start goes on there")
                return
            if options.save_steps and step and step % options.save_steps == 0:
                save(options.checkpoint, weights, at)
            loss, gradients = loss_and_gradients(weights, images[batch], labels[batch])
            weights -= options.lr * mean_of_all_ranks(gradients)
            losses.append(loss)
        at.next_epoch()
        print(f"epoch {at.epoch}/{at.last}  loss {np.mean(losses):.4f}  {time.monotonic() - started:.1f} s", flush=True)
        say(f"epoch {at.epoch}/{at.last}  test accuracy {100 * accuracy(weights, *test_set):.1f}%")
        save(options.checkpoint, weights, at)


def mean_of_all_ranks(gradients: np.ndarray) -> np.ndarray:
    total = np.empty_like(gradients)
    COMM.Allreduce(gradients, total, op=MPI.SUM)
    return total / COMM.size


def batches_of_this_rank(images: int, batch_size: int, seed: int) -> np.ndarray:
    """Return indices, a row per batch: another shuffle in each epoch, the same on all ranks, with the same number of batches on each."""
    steps = images // (batch_size * COMM.size)
    order = np.random.default_rng(seed).permutation(images)
    return order[: steps * batch_size * COMM.size].reshape(steps, COMM.size, batch_size)[:, COMM.rank]


class StopRequest:
    """SIGTERM: recorded when it arrives, obeyed before the next step."""

    def __init__(self) -> None:
        self.received = False
        signal.signal(signal.SIGTERM, self.note)

    def note(self, signum: int, frame: FrameType | None) -> None:
        self.received = True

    def on_any_rank(self) -> bool:
        # The signal reaches the ranks in different steps. If one rank stopped alone, the others would wait for its
        # gradients. So the ranks agree, and all stop before the same step.
        return bool(COMM.allreduce(int(self.received), op=MPI.MAX))


def resume(path: Path, inputs: int) -> tuple[np.ndarray, Progress]:
    """Return the weights to start with, and their progress."""
    # Rank 0 alone reads the file, so no other node needs it and all ranks start from the same state.
    state = None
    if COMM.rank == 0 and path.exists():
        with np.load(path) as checkpoint:
            state = checkpoint["weights"], Progress(**{name: int(checkpoint[name]) for name in asdict(Progress())})
    state = COMM.bcast(state)
    if state is None:
        return np.zeros((inputs, CLASSES)), Progress(ranks=COMM.size)
    say(state[1].resumed(path, COMM.size))
    return state


def save(path: Path, weights: np.ndarray, at: Progress) -> None:
    if COMM.rank != 0:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".tmp")
    with open(unfinished, "wb") as file:
        np.savez(file, weights=weights, **asdict(at))
    os.replace(unfinished, path)  # atomic: if this rank is killed, the old or the new checkpoint is complete


def say(text: str) -> None:
    if COMM.rank == 0:
        print(text, flush=True)


if __name__ == "__main__":
    main()
