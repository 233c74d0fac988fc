"""Data-parallel training with MindSpore: method msrun, and on Ascend NPUs method ranktable too.

    ranklaunch run --slots 2 --method msrun -- examples/msrun_digits.py --checkpoint digits.ckpt
    ranklaunch run --method ranktable -- examples/msrun_digits.py --checkpoint digits.ckpt

A small network learns scikit-learn's handwritten digits. Each rank has its own share of the images, and all ranks average their
gradients with ops.AllReduce. It resumes where it was stopped, in the middle of an epoch too. With a rank table (RANK_TABLE_FILE, RANK_ID)
the ranks use NPUs, and HCCL reads the table; else they use the devices of the installed MindSpore. Tested on CPUs only, not on NPUs.

msrun also runs this script once as the scheduler, on the node of rank 0. The scheduler stays inside init() until the ranks have ended, so
code for ranks must come after init().
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from dataclasses import astuple
from pathlib import Path
from types import FrameType

import mindspore as ms
import numpy as np
from digits_data import load_digits
from mindspore import nn, ops
from mindspore.communication import get_group_size, get_rank, init, release
from progress import Progress

TEST_IMAGES = 360


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on digits, as one rank of a job.", allow_abbrev=False)
    parser.add_argument("--epochs", type=int, default=5, help="more than are in the checkpoint, unless an earlier start was interrupted")
    parser.add_argument("--save_steps", type=int, default=0, help="save after so many steps too, and not at the ends of epochs alone")
    parser.add_argument("--batch_size", type=int, default=16, help="images per step and rank")
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--checkpoint", type=Path, default=Path("digits.ckpt"), help="read at the start if it is there")
    options, unknown = parser.parse_known_args()  # platforms add arguments of their own
    ms.set_context(mode=ms.PYNATIVE_MODE)
    join()
    say(f"{get_group_size()} ranks; ignored arguments: {unknown}")
    Training(options).run()
    release()


def join() -> None:
    """Join the process group, on the device of this rank."""
    if has_npus():
        ms.set_device("Ascend", int(os.environ.get("ASCEND_DEVICE_ID", "0")))
        init("hccl")
    else:
        ms.set_device("CPU")
        init("mccl")


def has_npus() -> bool:
    """True with a rank table, or if MindSpore has found CANN's runtime."""
    return bool(os.environ.get("RANK_TABLE_FILE")) or ms.hal.is_available("Ascend")


class Training:
    def __init__(self, options: argparse.Namespace) -> None:
        ms.set_seed(0)  # the same first weights on all ranks
        self.options = options
        self.stop = StopRequest()
        self.train_set, self.test_set = load_data()
        self.network = make_network()
        self.optimizer = nn.Adam(self.network.trainable_params(), learning_rate=options.lr)
        self.gradients = ms.value_and_grad(self.loss, None, self.optimizer.parameters)
        self.cross_entropy = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
        self.add_up = ops.AllReduce(ops.ReduceOp.SUM)

    def run(self) -> None:
        at = self.at = self.resume()
        at.begin(self.options.epochs)
        while at.epoch < at.last:
            started = time.monotonic()
            loss = self.train_epoch()
            if loss is None:
                self.save()
                say(f"stopped in epoch {at.epoch + 1} after image {at.images}: the next start goes on there")
                return
            at.next_epoch()
            self.report(at.epoch, at.last, loss, time.monotonic() - started)
            self.save()

    def loss(self, images: ms.Tensor, labels: ms.Tensor) -> ms.Tensor:
        return self.cross_entropy(self.network(images), labels)

    def train_epoch(self) -> float | None:
        """Train an epoch. Return the mean loss of this rank's share of the data, or None if the job must stop."""
        losses = []
        each = self.options.batch_size * get_group_size()
        for images, labels in self.batches(self.at.epoch + 1)[self.at.images // each :]:
            loss, gradients = self.gradients(images, labels)
            asked, means = self.on_all_ranks(gradients)
            if asked:
                return None
            self.optimizer(means)
            self.at.images += each
            losses.append(float(loss.asnumpy()))
            if self.options.save_steps and self.at.images % (self.options.save_steps * each) == 0:
                self.save()
        return sum(losses) / max(1, len(losses))

    def on_all_ranks(self, gradients: tuple[ms.Tensor, ...]) -> tuple[bool, tuple[ms.Tensor, ...]]:
        """Return True if any rank was asked to stop, and the mean gradients: in one message, because each message takes time.

        The signal reaches the ranks in different steps. If one rank stopped alone, the others would wait for its gradients. So the
        ranks agree, and all stop before the same step.
        """
        flat = np.concatenate([[float(self.stop.received)], *(gradient.asnumpy().ravel() for gradient in gradients)])
        asked, *sums = np.split(self.add_up(ms.Tensor(flat, ms.float32)).asnumpy(), np.cumsum([1, *(g.size for g in gradients)])[:-1])
        means = (ms.Tensor(total.reshape(g.shape) / get_group_size(), g.dtype) for total, g in zip(sums, gradients))
        return bool(asked[0]), tuple(means)

    def batches(self, epoch: int) -> list[tuple[ms.Tensor, ms.Tensor]]:
        """Return this rank's batches: another shuffle in each epoch, the same on all ranks, with the same number of batches on each."""
        images, labels = self.train_set
        order = np.random.default_rng(epoch).permutation(len(labels))
        share = order[get_rank() :: get_group_size()][: len(labels) // get_group_size()]
        starts = range(0, len(share), self.options.batch_size)
        return [(ms.Tensor(images[part]), ms.Tensor(labels[part])) for s in starts for part in (share[s : s + self.options.batch_size],)]

    def resume(self) -> Progress:
        """Load the checkpoint if there is one, and return its progress."""
        # Rank 0 alone reads the file, so no other node needs it. The other ranks add zeros to its values.
        path, loaded = self.options.checkpoint, {}
        if get_rank() == 0 and path.exists():
            loaded = ms.load_checkpoint(str(path))
        *at, there = (int(number) for number in self.from_rank_0(loaded.get("progress"), np.zeros(5)))
        if there:
            for parameter in self.optimizer_and_network():
                value = self.from_rank_0(loaded.get(parameter.name), parameter.asnumpy())
                parameter.set_data(ms.Tensor(value, parameter.dtype))
            progress = Progress(*at)
            say(progress.resumed(path, get_group_size()))
            return progress
        return Progress(ranks=get_group_size())

    def from_rank_0(self, value: ms.Parameter | None, like: np.ndarray) -> np.ndarray:
        # MindSpore's library for CPUs only sums floats.
        own = np.zeros(like.shape) if value is None else value.asnumpy().reshape(like.shape)
        return self.add_up(ms.Tensor(own, ms.float32)).asnumpy()

    def optimizer_and_network(self) -> list[ms.Parameter]:
        return list({p.name: p for cell in (self.network, self.optimizer) for p in cell.get_parameters()}.values())

    def save(self) -> None:
        if get_rank() != 0:
            return
        path = self.options.checkpoint
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f"unfinished-{path.stem}.ckpt")
        state = [{"name": p.name, "data": p} for p in self.optimizer_and_network()]
        progress = ms.Tensor([*astuple(self.at), 1], ms.int32)
        ms.save_checkpoint([*state, {"name": "progress", "data": progress}], str(unfinished))
        os.replace(unfinished, path)  # atomic: if this rank is killed, the old or the new checkpoint is complete

    def report(self, epoch: int, last: int, loss: float, seconds: float) -> None:
        line = f"epoch {epoch}/{last}  loss {loss:.4f}  {seconds:.1f} s"
        if get_rank() == 0:
            line += f"  test accuracy {self.accuracy():.1%}"
        tell(line)

    def accuracy(self) -> float:
        images, labels = self.test_set
        return float((self.network(ms.Tensor(images)).asnumpy().argmax(axis=1) == labels).mean())


class StopRequest:
    """SIGTERM: recorded when it arrives, obeyed before the next step."""

    def __init__(self) -> None:
        self.received = False
        signal.signal(signal.SIGTERM, self.note)

    def note(self, signum: int, frame: FrameType | None) -> None:
        self.received = True


def load_data() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    pixels, digits = load_digits()
    images, labels = pixels.astype(np.float32) / 16, digits.astype(np.int32)
    # The same seed on all ranks, so that no rank trains on another rank's test images.
    order = np.random.default_rng(0).permutation(len(labels))
    test, training = order[:TEST_IMAGES], order[TEST_IMAGES:]
    return (images[training], labels[training]), (images[test], labels[test])


def make_network() -> nn.Cell:
    return nn.SequentialCell(nn.Dense(64, 64), nn.ReLU(), nn.Dense(64, 10))


def say(text: str) -> None:
    """Print once per job, not once per rank."""
    if get_rank() == 0:
        tell(text)


def tell(line: str) -> None:
    # print() writes a line and its newline separately; ranks that share a pipe could write in between.
    print(line + "\n", end="", flush=True)


if __name__ == "__main__":
    main()
