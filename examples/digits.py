"""A small CNN learns scikit-learn's handwritten digits on every rank of a process group.

This module has the training itself: data, model, checkpoint, loop. ddp_digits.py and ddp_spawn_digits.py differ in how a rank learns its
number; each joins the process group with backend() and then calls train().

It uses the available devices: GPUs with nccl, Ascend NPUs with hccl, CPUs with gloo. It resumes where it was stopped, in the middle
of an epoch too: a checkpoint has the model, the optimizer, the scheduler, the place in the data and each rank's random numbers.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from digits_data import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

TEST_IMAGES = 360


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--epochs", type=int, default=5, help="more than are in the checkpoint, unless an earlier start was interrupted")
    parser.add_argument("--batch_size", type=int, default=16, help="images per step and rank")
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--checkpoint", type=Path, default=Path("digits.pt"), help="read at the start if it is there")
    parser.add_argument("--save_steps", type=int, default=0, help="save after so many steps too, and not at the ends of epochs alone")


def backend() -> str:
    return "nccl" if torch.cuda.is_available() else "hccl" if has_npus() else "gloo"


def device_of(local_rank: int) -> torch.device:
    """Return this rank's device, after making it the default device of this process."""
    if torch.cuda.is_available():
        torch.cuda.set_device(local_rank)
        return torch.device("cuda", local_rank)
    if has_npus():
        torch.npu.set_device(local_rank)
        return torch.device("npu", local_rank)
    return torch.device("cpu")


def has_npus() -> bool:
    if not importlib.util.find_spec("torch_npu"):
        return False
    import torch_npu  # noqa: F401 - this import adds NPUs to PyTorch

    return bool(torch.npu.is_available())


def train(options: argparse.Namespace, local_rank: int = 0) -> None:
    torch.set_num_threads(1)  # several ranks share this machine's cores
    torch.manual_seed(0)
    Training(options, device_of(local_rank)).run()


class Training:
    """The training of one rank. epoch: finished epochs. step: finished steps of the next epoch. last: number of epochs to train in all."""

    def __init__(self, options: argparse.Namespace, device: torch.device) -> None:
        self.options, self.device = options, device
        self.stop = StopRequest(device)
        train_set, self.test_set = load_data()
        self.model = make_model().to(device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=options.lr)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=1, gamma=0.95)
        self.sampler = Share(train_set)
        self.batches = DataLoader(train_set, batch_size=options.batch_size, sampler=self.sampler)
        self.epoch = self.step = self.last = 0

    def run(self) -> None:
        self.resume()
        model = DistributedDataParallel(self.model)
        if self.epoch >= self.last:  # else an earlier run was interrupted
            self.last = self.epoch + self.options.epochs
        while self.epoch < self.last:
            started = time.monotonic()
            loss = self.train_epoch(model)
            if loss is None:
                self.save()
                say(f"stopped in epoch {self.epoch + 1} after step {self.step}: the next start goes on there")
                return
            self.epoch, self.step = self.epoch + 1, 0
            self.scheduler.step()
            report(self.epoch, self.last, loss, time.monotonic() - started, self.model, self.test_set)
            self.save()

    def train_epoch(self, model: nn.Module) -> float | None:
        """Train an epoch. Return the mean loss of this rank's share of the data, or None if the job must stop."""
        model.train()
        losses = []
        self.sampler.set_epoch(self.epoch + 1)  # another shuffle in each epoch, the same one on all ranks
        self.sampler.done = self.step * self.options.batch_size
        for images, labels in self.batches:
            if self.stop.on_any_rank():
                return None
            self.optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images.to(self.device)), labels.to(self.device))
            loss.backward()
            self.optimizer.step()
            self.step += 1
            losses.append(loss.item())
            if self.options.save_steps and self.step % self.options.save_steps == 0:
                self.save()
        return sum(losses) / max(1, len(losses))

    def resume(self) -> None:
        # Rank 0 alone reads the file, so no other node needs it and all ranks start from the same state. It was written on rank 0's
        # device, and is read into CPU memory, which every rank has.
        path = self.options.checkpoint
        states = [torch.load(path, map_location="cpu", weights_only=True) if dist.get_rank() == 0 and path.exists() else None]
        dist.broadcast_object_list(states, src=0)
        if states[0] is None:
            return
        state: dict[str, Any] = states[0]
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        self.epoch, self.last = state["epoch"], state["last"]
        self.step = state["images"] // (self.options.batch_size * dist.get_world_size())
        if len(state["random"]) == dist.get_world_size():
            torch.set_rng_state(state["random"][dist.get_rank()])
        else:
            say(f"the checkpoint is of {len(state['random'])} ranks, and these are {dist.get_world_size()}: each gets another share")
        say(f"resumed from {path} at epoch {self.epoch}{f', step {self.step}' if self.step else ''}")

    def save(self) -> None:
        random: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(random, torch.get_rng_state())
        if dist.get_rank() != 0:
            return
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "epoch": self.epoch,
            "last": self.last,
            "images": self.step * self.options.batch_size * dist.get_world_size(),  # of the next epoch, on all ranks
            "random": random,
        }
        path = self.options.checkpoint
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(path.name + ".tmp")
        torch.save(state, unfinished)
        os.replace(unfinished, path)  # atomic: if this rank is killed, the old or the new checkpoint is complete


class Share(DistributedSampler):
    """This rank's share of the images, without the finished ones."""

    done = 0

    def __iter__(self) -> Iterator[int]:
        return iter(list(super().__iter__())[self.done :])

    def __len__(self) -> int:
        return super().__len__() - self.done


class StopRequest:
    """SIGTERM: recorded when it arrives, obeyed before the next step."""

    def __init__(self, device: torch.device | None = None) -> None:
        self.received = False
        self.device = device
        signal.signal(signal.SIGTERM, self.note)

    def note(self, signum: int, frame: FrameType | None) -> None:
        self.received = True

    def on_any_rank(self) -> bool:
        # The signal reaches the ranks in different steps. If one rank stopped alone, the others would wait for its
        # gradients. So the ranks agree, and all stop before the same step.
        asked = torch.tensor(int(self.received), device=self.device)
        dist.all_reduce(asked, op=dist.ReduceOp.MAX)
        return bool(asked.item())


def load_data() -> tuple[TensorDataset, TensorDataset]:
    pixels, digits = load_digits()
    images = torch.tensor(pixels, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    labels = torch.tensor(digits)
    # The same seed on all ranks, so that no rank trains on another rank's test images.
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


def report(epoch: int, last: int, loss: float, seconds: float, model: nn.Module, test_set: TensorDataset) -> None:
    line = f"epoch {epoch}/{last}  loss {loss:.4f}  {seconds:.1f} s"
    if dist.get_rank() == 0:
        line += f"  test accuracy {accuracy(model, test_set):.1%}"
    tell(line)


@torch.no_grad()
def accuracy(model: nn.Module, test_set: TensorDataset) -> float:
    model.eval()
    device = next(model.parameters()).device
    images, labels = (tensor.to(device) for tensor in test_set.tensors)
    return (model(images).argmax(dim=1) == labels).float().mean().item()


def say(text: str) -> None:
    """Print once per job, not once per rank."""
    if dist.get_rank() == 0:
        tell(text)


def tell(line: str) -> None:
    # print() writes a line and its newline separately; ranks that share a pipe could write in between.
    print(line + "\n", end="", flush=True)
