"""DeepSpeed with ZeRO stage 1: method deepspeed.

    ranklaunch simulate --nodes 2 --slots 2 --method deepspeed -- examples/deepspeed_digits.py --checkpoint digits

DeepSpeed's launcher gives a rank its place by RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, and by the argument
--local_rank. On a machine without GPUs, set DS_ACCELERATOR=cpu.

It resumes where it was stopped, in the middle of an epoch too. Each rank saves its part of the optimizer's state, so the
checkpoint must be on a disk that all nodes share, and the number of ranks must stay the same.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import deepspeed
import digits
import torch
import torch.distributed as dist
from progress import Progress
from torch import nn
from torch.utils.data import DataLoader


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on digits with DeepSpeed, as one rank of a job.", allow_abbrev=False)
    digits.add_options(parser)
    parser.set_defaults(checkpoint=Path("digits-deepspeed"))
    parser.add_argument("--local_rank", type=int, default=0, help="given by DeepSpeed's launcher")
    deepspeed.add_config_arguments(parser)  # --deepspeed_config, which autotuning uses
    options, unknown = parser.parse_known_args()  # platforms add arguments of their own
    if not torch.cuda.is_available():
        use_gloo_alone()
    deepspeed.init_distributed()
    digits.say(f"{dist.get_world_size()} ranks; ignored arguments: {unknown}")
    train(options)
    dist.barrier()  # so that no rank closes its connections while another still uses them
    dist.destroy_process_group()


def use_gloo_alone() -> None:
    """Use gloo only. By default DeepSpeed compiles a faster all-reduce for ranks of one host at the first start, for minutes."""
    deepspeed.ops.__compatible_ops__ = {}


def train(options: argparse.Namespace) -> None:
    torch.set_num_threads(1)  # several ranks share this machine's cores
    torch.manual_seed(0)
    stop = digits.StopRequest()
    train_set, test_set = digits.load_data()
    model = digits.make_model()
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config(options))
    stop.device = engine.device
    at = resume(engine, options.checkpoint)
    at.begin(options.epochs)
    sampler = digits.Share(train_set)
    batches = DataLoader(train_set, batch_size=engine.train_micro_batch_size_per_gpu(), sampler=sampler)
    while at.epoch < at.last:
        sampler.set_epoch(at.epoch + 1)  # another shuffle in each epoch, the same one on all ranks
        sampler.done = at.images // dist.get_world_size()
        started = time.monotonic()
        loss = train_epoch(engine, batches, stop, options, at)
        if loss is None:
            save(engine, options.checkpoint, at)
            digits.say(f"stopped in epoch {at.epoch + 1} after image {at.images}: the next start goes on there")
            return
        at.next_epoch()
        digits.report(at.epoch, at.last, loss, time.monotonic() - started, model, test_set)
        save(engine, options.checkpoint, at)


def config(options: argparse.Namespace) -> str | dict[str, Any]:
    if options.deepspeed_config:
        return options.deepspeed_config
    return {
        "train_micro_batch_size_per_gpu": options.batch_size,
        "optimizer": {
            "type": "Adam",
            "params": {"lr": options.lr, "torch_adam": True},
        },  # DeepSpeed's own Adam must be compiled
        "zero_optimization": {"stage": 1},
    }


def train_epoch(
    engine: deepspeed.DeepSpeedEngine, batches: DataLoader, stop: digits.StopRequest, options: argparse.Namespace, at: Progress
) -> float | None:
    """Train an epoch. Return the mean loss of this rank's share of the data, or None if the job must stop."""
    engine.train()
    losses = []
    for images, labels in batches:
        if stop.on_any_rank():
            return None
        loss = nn.functional.cross_entropy(engine(images.to(engine.device)), labels.to(engine.device))
        engine.backward(loss)
        engine.step()
        at.images += len(images) * dist.get_world_size()
        losses.append(loss.item())
        if options.save_steps and engine.global_steps % options.save_steps == 0:
            save(engine, options.checkpoint, at)
    return sum(losses) / max(1, len(losses))


def resume(engine: deepspeed.DeepSpeedEngine, folder: Path) -> Progress:
    """Return the progress in the newest complete checkpoint, which DeepSpeed names in the file latest."""
    if not (folder / "latest").exists():
        return Progress(ranks=dist.get_world_size())
    path, state = engine.load_checkpoint(str(folder))
    at = Progress(**{name: state[name] for name in asdict(Progress())})
    digits.say(at.resumed(path, dist.get_world_size()))
    return at


def save(engine: deepspeed.DeepSpeedEngine, folder: Path, at: Progress) -> None:
    """Save a checkpoint. Called on all ranks: each has a part of the optimizer's state."""
    engine.save_checkpoint(str(folder), tag=f"epoch_{at.epoch}_step_{engine.global_steps}", client_state=asdict(at))


if __name__ == "__main__":
    main()
