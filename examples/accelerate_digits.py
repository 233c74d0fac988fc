"""Hugging Face Accelerate: method accelerate.

    ranklaunch simulate --nodes 2 --slots 2 --method accelerate -- examples/accelerate_digits.py --checkpoint digits

The Accelerator reads its place in the job from the variables of `accelerate launch`. It adds process group, devices, sharding of the data
and averaging of gradients to ordinary code. `python examples/accelerate_digits.py` alone is a job of one rank.

It resumes where it was stopped, in the middle of an epoch too. All ranks read the checkpoint, so its folder must be on a disk that all
nodes share.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
from pathlib import Path
from types import FrameType

import digits
import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, set_seed
from torch import nn
from torch.utils.data import DataLoader


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on digits with Accelerate.", allow_abbrev=False)
    digits.add_options(parser)
    parser.set_defaults(checkpoint=Path("digits"))
    parser.add_argument("--accumulate", type=int, default=1, help="batches whose gradients make one step")
    options, unknown = parser.parse_known_args()  # platforms add arguments of their own
    accelerator = Accelerator(
        gradient_accumulation_steps=options.accumulate,
        # The order of an epoch follows from its number, so that an interrupted epoch can be resumed.
        dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True),
    )
    say(accelerator, f"{accelerator.num_processes} ranks, mixed precision {accelerator.mixed_precision}; ignored arguments: {unknown}")
    Training(options, accelerator).run()
    # Destroys the process groups. At the interpreter's exit one rank could still wait for another.
    accelerator.end_training()


class Progress:
    """Progress of the training, which the Accelerator saves with the model.

    epoch: finished epochs. batch: finished batches of the next epoch, on each of `ranks` ranks. last: number of epochs to train in all.
    """

    def __init__(self, ranks: int) -> None:
        self.epoch = self.batch = self.last = 0
        self.ranks = self.saved_by = ranks

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch, "batch": self.batch, "last": self.last, "ranks": self.ranks}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.epoch, self.last, self.saved_by = state["epoch"], state["last"], state["ranks"]
        self.batch = state["batch"] * self.saved_by // self.ranks


class Training:
    def __init__(self, options: argparse.Namespace, accelerator: Accelerator) -> None:
        torch.set_num_threads(1)  # several ranks share this machine's cores
        set_seed(0)
        self.options, self.accelerator = options, accelerator
        self.stop, self.progress = StopRequest(), Progress(accelerator.num_processes)
        train_set, self.test_set = digits.load_data()
        model = digits.make_model()
        optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=100, gamma=0.95)
        batches = DataLoader(train_set, batch_size=options.batch_size, shuffle=True)
        self.model, self.optimizer, self.scheduler, self.batches = accelerator.prepare(model, optimizer, scheduler, batches)
        accelerator.register_for_checkpointing(self.progress)

    def run(self) -> None:
        self.resume()
        if self.progress.epoch >= self.progress.last:  # else an earlier run was interrupted
            self.progress.last = self.progress.epoch + self.options.epochs
        while self.progress.epoch < self.progress.last:
            loss = self.train_epoch()
            if loss is None:
                self.save()
                say(
                    self.accelerator,
                    f"stopped in epoch {self.progress.epoch + 1} after batch {self.progress.batch}: the next start goes on there",
                )
                return
            self.progress.epoch, self.progress.batch = self.progress.epoch + 1, 0
            line = f"epoch {self.progress.epoch}/{self.progress.last}  loss {loss:.4f}"
            if self.accelerator.is_main_process:
                line += f"  test accuracy {digits.accuracy(self.accelerator.unwrap_model(self.model), self.test_set):.1%}"
            digits.tell(line)
            self.save()

    def train_epoch(self) -> float | None:
        """Train an epoch. Return the mean loss of this rank's share of the data, or None if the job must stop."""
        self.model.train()
        losses = []
        self.batches.set_epoch(self.progress.epoch)  # another shuffle in each epoch, the same one on all ranks
        for images, labels in self.accelerator.skip_first_batches(self.batches, self.progress.batch):
            if self.progress.batch % self.options.accumulate == 0 and self.stop.on_any_rank(self.accelerator):
                return None
            with self.accelerator.accumulate(self.model):
                loss = nn.functional.cross_entropy(self.model(images), labels)
                self.accelerator.backward(loss)
                self.optimizer.step()
                self.scheduler.step()
                self.optimizer.zero_grad()
            self.progress.batch += 1
            losses.append(loss.item())
            if self.options.save_steps and self.progress.batch % (self.options.save_steps * self.options.accumulate) == 0:
                self.save()
        return sum(losses) / max(1, len(losses))

    def resume(self) -> None:
        folders = sorted(self.options.checkpoint.glob("saved-*"))
        if folders:
            self.accelerator.load_state(str(folders[-1]))
            batch = f", batch {self.progress.batch}" if self.progress.batch else ""
            say(self.accelerator, f"resumed from {folders[-1]} at epoch {self.progress.epoch}{batch}")
            if self.progress.saved_by != self.progress.ranks:
                say(
                    self.accelerator,
                    f"it is of {self.progress.saved_by} ranks, and these are {self.progress.ranks}: each gets another share",
                )

    def save(self) -> None:
        finished = self.options.checkpoint / f"saved-{self.progress.epoch:06}-{self.progress.batch:06}"
        if finished.exists():
            return
        unfinished = self.options.checkpoint / "unfinished"
        if self.accelerator.is_main_process:
            shutil.rmtree(unfinished, ignore_errors=True)  # from a run that was killed while it saved
        self.accelerator.wait_for_everyone()
        self.accelerator.save_state(str(unfinished))
        self.accelerator.wait_for_everyone()  # each rank writes its own random numbers
        if self.accelerator.is_main_process:
            # Atomic: if this rank is killed, the newest folder saved-* is complete.
            os.replace(unfinished, finished)
            for older in sorted(self.options.checkpoint.glob("saved-*"))[:-2]:
                shutil.rmtree(older)
        self.accelerator.wait_for_everyone()


class StopRequest:
    """SIGTERM: recorded when it arrives, obeyed before the next step, by all ranks before the same step."""

    def __init__(self) -> None:
        self.received = False
        signal.signal(signal.SIGTERM, self.note)

    def note(self, signum: int, frame: FrameType | None) -> None:
        self.received = True

    def on_any_rank(self, accelerator: Accelerator) -> bool:
        asked = torch.tensor([int(self.received)], device=accelerator.device)
        return bool(accelerator.gather(asked).max().item())


def say(accelerator: Accelerator, text: str) -> None:
    """Print once per job; accelerator.print would print once per node."""
    if accelerator.is_main_process:
        digits.tell(text)


if __name__ == "__main__":
    main()
