"""Hugging Face Accelerate: method accelerate.

    ranklaunch simulate --nodes 2 --slots 2 --method accelerate -- examples/accelerate_digits.py --checkpoint digits.pt

The Accelerator finds out who it is from what `accelerate launch` tells it, and puts the process group, the share of the data and the
gradients' averaging around ordinary code. Alone, `python examples/accelerate_digits.py` is the whole job.
"""

from __future__ import annotations

import argparse
import os
import signal
from pathlib import Path
from types import FrameType

import digits
import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list
from torch import nn
from torch.utils.data import DataLoader


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on digits with Accelerate.", allow_abbrev=False)
    digits.add_options(parser)
    options, unknown = parser.parse_known_args()  # platforms add arguments of their own
    accelerator = Accelerator()
    say(accelerator, f"{accelerator.num_processes} ranks, mixed precision {accelerator.mixed_precision}; ignored arguments: {unknown}")
    train(options, accelerator)
    # Without it, process groups are left to the interpreter's end, where one rank may still wait for another.
    accelerator.end_training()


def train(options: argparse.Namespace, accelerator: Accelerator) -> None:
    torch.set_num_threads(1)  # several ranks share this machine's cores
    torch.manual_seed(0)
    stop = StopRequest()
    train_set, test_set = digits.load_data()
    model = digits.make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)
    done = resume(options.checkpoint, model, optimizer, accelerator)
    batches = DataLoader(train_set, batch_size=options.batch_size, shuffle=True)
    model, optimizer, batches = accelerator.prepare(model, optimizer, batches)
    for epoch in range(done + 1, done + options.epochs + 1):
        batches.set_epoch(epoch)  # another shuffle in each epoch, the same one on all ranks
        loss = train_epoch(model, optimizer, batches, stop, accelerator)
        if loss is None:
            save(options.checkpoint, model, optimizer, epoch - 1, accelerator)
            say(accelerator, f"stopped in epoch {epoch}: the next start repeats it")
            return
        line = f"epoch {epoch}/{done + options.epochs}  loss {loss:.4f}"
        if accelerator.is_main_process:
            line += f"  test accuracy {digits.accuracy(accelerator.unwrap_model(model), test_set):.1%}"
        digits.tell(line)
        save(options.checkpoint, model, optimizer, epoch, accelerator)


def train_epoch(
    model: nn.Module, optimizer: torch.optim.Optimizer, batches: DataLoader, stop: StopRequest, accelerator: Accelerator
) -> float | None:
    """The mean loss of this rank's share of the data, or None when the job was asked to stop."""
    model.train()
    total = 0.0
    for images, labels in batches:
        if stop.on_any_rank(accelerator):
            return None
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        accelerator.backward(loss)
        optimizer.step()
        total += loss.item()
    return total / len(batches)


class StopRequest:
    """SIGTERM, noted when it arrives and obeyed before the next step, by all ranks before the same one."""

    def __init__(self) -> None:
        self.received = False
        signal.signal(signal.SIGTERM, self.note)

    def note(self, signum: int, frame: FrameType | None) -> None:
        self.received = True

    def on_any_rank(self, accelerator: Accelerator) -> bool:
        asked = torch.tensor([int(self.received)], device=accelerator.device)
        return bool(accelerator.gather(asked).max().item())


def resume(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, accelerator: Accelerator) -> int:
    """How many epochs are done: those of the checkpoint, or 0 without one."""
    # Rank 0 alone reads the file: it needs to be on no other node, and all ranks start from the same state.
    found = [torch.load(path, weights_only=True) if accelerator.is_main_process and path.exists() else None]
    checkpoint = broadcast_object_list(found)[0]
    if checkpoint is None:
        return 0
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    say(accelerator, f"resumed from {path} at epoch {checkpoint['epoch']}")
    return int(checkpoint["epoch"])


def save(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, epoch: int, accelerator: Accelerator) -> None:
    if not accelerator.is_main_process:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".tmp")
    state = {"model": accelerator.unwrap_model(model).state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
    torch.save(state, unfinished)
    os.replace(unfinished, path)  # whenever this rank is killed, there is a whole checkpoint, the old or the new one


def say(accelerator: Accelerator, text: str) -> None:
    """Once per job; accelerator.print would do it once per node."""
    if accelerator.is_main_process:
        digits.tell(text)


if __name__ == "__main__":
    main()
