"""A small example of Megatron-LM's tensor and data parallelism, with its flags: method megatron.

    ranklaunch simulate --nodes 2 --slots 2 --method megatron --tp 2 -- examples/megatron_digits.py --checkpoint digits.pt

Two layers are split between the ranks of a tensor parallel group: each rank has a share of the hidden units. The group sums its results
once in the forward pass and once in the backward pass. Ranks with the same share form a data parallel group: each gets other images of a
batch, and their gradients are averaged. The model learns the same in every layout;
`python examples/megatron_digits.py` is the layout of one rank. It resumes where it was stopped, in the middle of an epoch, also with
another layout.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import digits
import torch
import torch.distributed as dist
from progress import Progress
from torch import nn

HIDDEN = 64  # units of all ranks together
PIXELS, CLASSES = 64, 10
CUT = {"into": 0, "into_bias": 0, "out": 1}  # split parameters, with the dimension


def main() -> None:
    options = parse(sys.argv[1:])
    join_process_group()
    layout = make_layout(options.tensor_model_parallel_size)
    digits.say(f"tensor parallel {layout.tp_size}, data parallel {layout.dp_size}")
    train(options, layout)
    dist.barrier()  # so that no rank closes its connections while another still uses them
    dist.destroy_process_group()


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train on digits with tensor parallelism.", allow_abbrev=False)
    parser.add_argument("--tensor-model-parallel-size", type=int, default=1)
    for kind in ("pipeline-model", "context", "expert-model"):
        parser.add_argument(f"--{kind}-parallel-size", type=int, default=1, choices=[1], help="this small program has no such layers")
    parser.add_argument("--epochs", type=int, default=5, help="more than are in the checkpoint, unless an earlier start was interrupted")
    parser.add_argument("--save-steps", "--save_steps", type=int, default=0, help="save after so many steps too")
    parser.add_argument("--global-batch-size", type=int, default=48, help="images per step of all ranks together")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--checkpoint", type=Path, default=Path("digits.pt"), help="read at the start if it is there")
    options, unknown = parser.parse_known_args(argv)  # platforms add arguments of their own
    if any("parallel-size" in word for word in unknown):
        sys.exit(f"unknown: {unknown}")
    return options


def join_process_group() -> None:
    if "RANK" in os.environ:
        dist.init_process_group("gloo", init_method="env://")
    else:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)


class Layout(NamedTuple):
    tp: dist.ProcessGroup
    tp_rank: int
    tp_size: int
    dp: dist.ProcessGroup
    dp_rank: int
    dp_size: int


def make_layout(tp: int) -> Layout:
    """Make the groups: `tp` neighbours form a tensor parallel group; ranks at a distance of `tp` form a data parallel group."""
    rank, world = dist.get_rank(), dist.get_world_size()
    if world % tp:
        sys.exit(f"{world} ranks cannot be divided by --tensor-model-parallel-size {tp}")
    # torch requires that all ranks make all groups, in the same order.
    tp_groups = [dist.new_group(list(range(first, first + tp))) for first in range(0, world, tp)]
    dp_groups = [dist.new_group(list(range(first, world, tp))) for first in range(tp)]
    return Layout(tp_groups[rank // tp], rank % tp, tp, dp_groups[rank % tp], rank // tp, world // tp)


class ToShares(torch.autograd.Function):
    """Input of all shares: its gradient is the sum of the shares' gradients."""

    @staticmethod
    def forward(context: object, x: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        context.group = group
        return x.view_as(x)

    @staticmethod
    def backward(context: object, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        gradient = gradient.clone()
        dist.all_reduce(gradient, group=context.group)
        return gradient, None


class FromShares(torch.autograd.Function):
    """Sum of the shares' outputs: each share's gradient is the gradient of the sum."""

    @staticmethod
    def forward(context: object, x: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(context: object, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient, None


class Model(nn.Module):
    """A layer split by outputs, then one split by inputs: no rank needs another's hidden units between them."""

    def __init__(self, layout: Layout, whole: dict[str, torch.Tensor]) -> None:
        super().__init__()
        self.group = layout.tp
        self.scale = nn.Parameter(whole["scale"])
        self.into = nn.Parameter(share(whole["into"], 0, layout))
        self.into_bias = nn.Parameter(share(whole["into_bias"], 0, layout))
        self.out = nn.Parameter(share(whole["out"], 1, layout))
        self.out_bias = nn.Parameter(whole["out_bias"])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(nn.functional.linear(ToShares.apply(x * self.scale, self.group), self.into, self.into_bias))
        return FromShares.apply(nn.functional.linear(hidden, self.out), self.group) + self.out_bias


def make_whole() -> dict[str, torch.Tensor]:
    """Return the initial parameters of the whole model, the same on all ranks. scale: one factor for each pixel, in all shares."""
    random = torch.Generator().manual_seed(0)
    return {
        "scale": torch.ones(PIXELS),
        "into": torch.randn(HIDDEN, PIXELS, generator=random) / PIXELS**0.5,
        "into_bias": torch.zeros(HIDDEN),
        "out": torch.randn(CLASSES, HIDDEN, generator=random) / HIDDEN**0.5,
        "out_bias": torch.zeros(CLASSES),
    }


def share(tensor: torch.Tensor, dimension: int, layout: Layout) -> torch.Tensor:
    return tensor.chunk(layout.tp_size, dimension)[layout.tp_rank].clone()


def train(options: argparse.Namespace, layout: Layout) -> None:
    torch.set_num_threads(1)  # several ranks share this machine's cores
    size = options.global_batch_size
    if size % layout.dp_size or HIDDEN % layout.tp_size:
        sys.exit(f"{size} images and {HIDDEN} hidden units cannot be divided over {layout.dp_size} and {layout.tp_size} ranks")
    stop = digits.StopRequest()
    train_set, test_set = digits.load_data()
    at, whole, momentum = resume(options.checkpoint)
    model = Model(layout, whole)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9)
    for name, parameter in model.named_parameters() if momentum else ():
        dimension = CUT.get(name)
        own = momentum[name] if dimension is None else share(momentum[name], dimension, layout)
        optimizer.state[parameter]["momentum_buffer"] = own
    at.begin(options.epochs)
    while at.epoch < at.last:
        order = torch.randperm(len(train_set), generator=torch.Generator().manual_seed(at.epoch + 1))
        for batch in order.split(size)[at.images // size : -1]:  # the last batch is smaller, and may not be divisible by the ranks
            if stop.on_any_rank():
                save(options.checkpoint, model, optimizer, layout, at)
                digits.say(f"stopped in epoch {at.epoch + 1} after image {at.images}: the next start goes on there")
                return
            step(model, optimizer, *train_set[batch.chunk(layout.dp_size)[layout.dp_rank]], layout)
            at.images += size
            if options.save_steps and at.images % (options.save_steps * size) == 0:
                save(options.checkpoint, model, optimizer, layout, at)
        at.next_epoch()
        hits = accuracy(model, *test_set.tensors)  # computed by the whole group
        digits.say(f"epoch {at.epoch}/{at.last}  test accuracy {hits:.1%}")
        save(options.checkpoint, model, optimizer, layout, at)


def step(model: Model, optimizer: torch.optim.Optimizer, images: torch.Tensor, labels: torch.Tensor, layout: Layout) -> None:
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(images.flatten(1)), labels).backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad, group=layout.dp)
        parameter.grad /= layout.dp_size
    optimizer.step()


@torch.no_grad()
def accuracy(model: Model, images: torch.Tensor, labels: torch.Tensor) -> float:
    return (model(images.flatten(1)).argmax(dim=1) == labels).float().mean().item()


def resume(path: Path) -> tuple[Progress, dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Return progress, whole model and whole momentum of the checkpoint, which any layout can load."""
    # Rank 0 alone reads the file, so no other node needs it.
    states = [torch.load(path, weights_only=True) if dist.get_rank() == 0 and path.exists() else None]
    dist.broadcast_object_list(states, src=0)
    if states[0] is None:
        return Progress(ranks=dist.get_world_size()), make_whole(), {}
    at = Progress(**states[0]["progress"])
    digits.say(at.resumed(path, dist.get_world_size()))
    return at, states[0]["model"], states[0]["momentum"]


def put_together(state: dict[str, torch.Tensor], layout: Layout) -> dict[str, torch.Tensor]:
    """Return whole tensors from the shares of the tensor parallel group."""
    whole = dict(state)
    for name, dimension in CUT.items():
        shares = [torch.empty_like(state[name]) for _ in range(layout.tp_size)]
        dist.all_gather(shares, state[name].contiguous(), group=layout.tp)
        whole[name] = torch.cat(shares, dimension)
    return whole


def save(path: Path, model: Model, optimizer: torch.optim.Optimizer, layout: Layout, at: Progress) -> None:
    named = dict(model.named_parameters())
    state = put_together({name: parameter.detach() for name, parameter in named.items()}, layout)
    begun = {name: optimizer.state[parameter].get("momentum_buffer") for name, parameter in named.items()}
    momentum = put_together(begun, layout) if all(buffer is not None for buffer in begun.values()) else {}
    if dist.get_rank() == 0:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(path.name + ".tmp")
        torch.save({"model": state, "momentum": momentum, "progress": asdict(at)}, unfinished)
        os.replace(unfinished, path)  # atomic: if this rank is killed, the old or the new checkpoint is complete


if __name__ == "__main__":
    main()
