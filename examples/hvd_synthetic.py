"""Measure Horovod in images per second, with a small model and synthetic images: method mpirun.

    ranklaunch simulate --nodes 2 --slots 2 --method mpirun -- examples/hvd_synthetic.py --num-iters 3

Horovod gets the rank's number from MPI, broadcasts rank 0's parameters, and averages the gradients inside a wrapper of PyTorch's
optimizer. Each rank uses the GPU of its local rank, or the CPU if there are none.
"""

from __future__ import annotations

import argparse
import statistics
import time

import horovod.torch as hvd
import torch
from torch import nn

CLASSES = 10


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure Horovod with made-up images, as one rank of a job.", allow_abbrev=False)
    parser.add_argument("--num-iters", "--epochs", type=int, default=5, help="measurements")
    parser.add_argument("--num-batches", type=int, default=10, help="batches of each measurement")
    parser.add_argument("--batch-size", type=int, default=32, help="images per step and rank")
    parser.add_argument("--size", type=int, default=16, help="pixels of an image's side")
    parser.add_argument("--fp16-allreduce", action="store_true", help="send gradients with half the bits")
    parser.add_argument("--use-adasum", action="store_true", help="combine gradients by Adasum in place of their mean")
    options, unknown = parser.parse_known_args()  # platforms add arguments of their own
    hvd.init()
    say(f"{hvd.size()} ranks, {hvd.local_size()} on this node; ignored arguments: {unknown}")
    measure(options)
    hvd.shutdown()


def measure(options: argparse.Namespace) -> None:
    torch.set_num_threads(1)  # several ranks share this machine's cores
    torch.manual_seed(hvd.rank())  # each rank has its own images, and parameters until it gets those of rank 0
    device = own_device()
    model = make_model().to(device)
    optimizer = make_optimizer(model, options)
    images = torch.randn(options.batch_size, 3, options.size, options.size, device=device)
    labels = torch.randint(CLASSES, (options.batch_size,), device=device)
    run(model, optimizer, images, labels, options.num_batches)  # the first ones are slower, and not counted
    speeds = []
    for i in range(options.num_iters):
        started = time.monotonic()
        loss = run(model, optimizer, images, labels, options.num_batches)
        speeds.append(options.batch_size * options.num_batches / (time.monotonic() - started))
        say(f"iteration {i + 1}/{options.num_iters}  loss {loss:.4f}  {speeds[-1]:.1f} img/sec per process")
    report(speeds)


def run(model: nn.Module, optimizer: torch.optim.Optimizer, images: torch.Tensor, labels: torch.Tensor, batches: int) -> float:
    """Train some batches. Return the last loss."""
    loss = torch.tensor(0.0)
    for _ in range(batches):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
    return loss.item()


def make_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, CLASSES),
    )


def own_device() -> torch.device:
    """Return the GPU of this local rank; without GPUs the CPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    torch.cuda.set_device(hvd.local_rank())
    return torch.device("cuda", hvd.local_rank())


def make_optimizer(model: nn.Module, options: argparse.Namespace) -> torch.optim.Optimizer:
    # The learning rate grows with the number of ranks, whose batches form one batch. Adasum scales steps itself; with NCCL, which sums
    # within a node, the factor is the number of ranks of one node.
    steps = (hvd.local_size() if hvd.nccl_built() else 1) if options.use_adasum else hvd.size()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * steps)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    return hvd.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        compression=hvd.Compression.fp16 if options.fp16_allreduce else hvd.Compression.none,
        op=hvd.Adasum if options.use_adasum else hvd.Average,
    )


def report(speeds: list[float]) -> None:
    """Print the sum of all ranks' means. One mean times the number of ranks would be wrong: ranks may differ."""
    mean = statistics.fmean(speeds) if speeds else 0.0
    total = hvd.allreduce(torch.tensor(mean), op=hvd.Sum).item()
    print(f"rank {hvd.rank()}: {mean:.1f} img/sec", flush=True)
    say(f"total of {hvd.size()} ranks: {total:.1f} img/sec")


def say(text: str) -> None:
    if hvd.rank() == 0:
        print(text, flush=True)


if __name__ == "__main__":
    main()
