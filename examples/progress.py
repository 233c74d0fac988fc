"""Progress of a training, which examples save beside their parameters. digits.py has its own form of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Progress:
    """Progress of a training.

    epoch: number of finished epochs. images: number of images done in the next epoch, on all ranks. last: number of epochs to train in all.
    ranks: number of ranks; in a checkpoint, that of the run that saved it.
    """

    epoch: int = 0
    images: int = 0
    last: int = 0
    ranks: int = 1

    def begin(self, epochs: int) -> None:
        """Add epochs to train, unless an earlier run was interrupted: its epochs are finished first."""
        if self.epoch >= self.last:
            self.last = self.epoch + epochs

    def next_epoch(self) -> None:
        self.epoch, self.images = self.epoch + 1, 0

    def resumed(self, path: object, ranks: int) -> str:
        """Return a line for the log, and take over the number of ranks of this run."""
        text = f"resumed from {path} at epoch {self.epoch}{f', image {self.images}' if self.images else ''}"
        if self.ranks != ranks:
            text += f"; the checkpoint is of {self.ranks} ranks, and these are {ranks}: each gets another share"
        self.ranks = ranks
        return text
