"""A small CNN learns scikit-learn's handwritten digits on every rank of a process group.

This is the training itself: data, model, checkpoint, loop. The scripts beside it, ddp_digits.py and
ddp_spawn_digits.py, differ in how a rank finds out who it is; each joins the process group and then calls train().

It runs on CPUs with the gloo backend, so it can be tried anywhere. On GPUs, join with "nccl" (on Ascend NPUs, with
"hccl"), and move the model and each batch to the device of the local rank.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from pathlib import Path
from types import FrameType

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

TEST_IMAGES = 360


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--epochs", type=int, default=5, help="epochs of this start, on top of those in the checkpoint")
    parser.add_argument("--batch_size", type=int, default=16, help="images per step and rank")
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--checkpoint", type=Path, default=Path("digits.pt"), help="read at the start if it is there")


def train(options: argparse.Namespace) -> None:
    torch.set_num_threads(1)  # several ranks share this machine's cores
    torch.manual_seed(0)
    stop = StopRequest()
    train_set, test_set = load_data()
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)
    done = resume(options.checkpoint, model, optimizer)
    sampler = DistributedSampler(train_set)
    batches = DataLoader(train_set, batch_size=options.batch_size, sampler=sampler)
    parallel_model = DistributedDataParallel(model)
    for epoch in range(done + 1, done + options.epochs + 1):
        sampler.set_epoch(epoch)  # another shuffle in each epoch, the same one on all ranks
        started = time.monotonic()
        loss = train_epoch(parallel_model, optimizer, batches, stop)
        if loss is None:
            save(options.checkpoint, model, optimizer, epoch - 1)
            say(f"stopped in epoch {epoch}: the next start repeats it")
            return
        report(epoch, done + options.epochs, loss, time.monotonic() - started, model, test_set)
        save(options.checkpoint, model, optimizer, epoch)


def train_epoch(model: nn.Module, optimizer: torch.optim.Optimizer, batches: DataLoader, stop: StopRequest) -> float | None:
    """The mean loss of this rank's share of the data, or None when the job was asked to stop."""
    model.train()
    total = 0.0
    for images, labels in batches:
        if stop.on_any_rank():
            return None
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(batches)


class StopRequest:
    """SIGTERM, noted when it arrives and obeyed before the next step."""

    def __init__(self) -> None:
        self.received = False
        signal.signal(signal.SIGTERM, self.note)

    def note(self, signum: int, frame: FrameType | None) -> None:
        self.received = True

    def on_any_rank(self) -> bool:
        # The signal reaches the ranks between different steps. A rank that left on its own would leave the others
        # waiting for its gradients, so all ask each other and all stop before the same step.
        asked = torch.tensor(int(self.received))
        dist.all_reduce(asked, op=dist.ReduceOp.MAX)
        return bool(asked.item())


def load_data() -> tuple[TensorDataset, TensorDataset]:
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    # The same seed on all ranks, so that what one rank tests on no other rank trains on.
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    test, training = order[:TEST_IMAGES], order[TEST_IMAGES:]
    return TensorDataset(images[training], labels[training]), TensorDataset(images[test], labels[test])


def make_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 2 * 2, 10),
    )


def resume(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """How many epochs are done: those of the checkpoint, or 0 without one."""
    # Rank 0 alone reads the file: it needs to be on no other node, and all ranks start from the same state.
    found = [torch.load(path, weights_only=True) if dist.get_rank() == 0 and path.exists() else None]
    dist.broadcast_object_list(found, src=0)
    checkpoint = found[0]
    if checkpoint is None:
        return 0
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    epoch = int(checkpoint["epoch"])
    say(f"resumed from {path} at epoch {epoch}")
    return epoch


def save(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, epoch: int) -> None:
    if dist.get_rank() != 0:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".tmp")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, unfinished)
    os.replace(unfinished, path)  # whenever this rank is killed, there is a whole checkpoint, the old or the new one


def report(epoch: int, last: int, loss: float, seconds: float, model: nn.Module, test_set: TensorDataset) -> None:
    line = f"epoch {epoch}/{last}  loss {loss:.4f}  {seconds:.1f} s"
    if dist.get_rank() == 0:
        line += f"  test accuracy {accuracy(model, test_set):.1%}"
    tell(line)


@torch.no_grad()
def accuracy(model: nn.Module, test_set: TensorDataset) -> float:
    model.eval()
    images, labels = test_set.tensors
    return (model(images).argmax(dim=1) == labels).float().mean().item()


def say(text: str) -> None:
    """Print once per job, not once per rank."""
    if dist.get_rank() == 0:
        tell(text)


def tell(line: str) -> None:
    # print() writes a line and its end in two pieces, and where ranks share a pipe, others would write in between.
    print(line + "\n", end="", flush=True)
