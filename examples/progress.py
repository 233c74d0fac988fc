"""How far a training is, as examples save it beside their parameters; digits.py does the same with its own words."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Progress:
    """epoch: how many are done. images: how many of the next one, on all ranks. last: how many epochs there are to be. ranks: how many
    there are; in a checkpoint, how many there were."""

    epoch: int = 0
    images: int = 0
    last: int = 0
    ranks: int = 1

    def begin(self, epochs: int) -> None:
        """So many more, unless an earlier start has not come to its end: that is to come first."""
        if self.epoch >= self.last:
            self.last = self.epoch + epochs

    def next_epoch(self) -> None:
        self.epoch, self.images = self.epoch + 1, 0

    def resumed(self, path: object, ranks: int) -> str:
        """A sentence for people. From here on there are these ranks."""
        text = f"resumed from {path} at epoch {self.epoch}{f', image {self.images}' if self.images else ''}"
        if self.ranks != ranks:
            text += f"; the checkpoint is of {self.ranks} ranks, and these are {ranks}: each gets another share"
        self.ranks = ranks
        return text
