"""DeepSpeed with ZeRO stage 1: method deepspeed.

    ranklaunch simulate --nodes 2 --slots 2 --method deepspeed -- examples/deepspeed_digits.py --checkpoint digits

DeepSpeed's launcher tells a rank who it is by RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, and by --local_rank among
its arguments. On a machine without GPUs, set DS_ACCELERATOR=cpu.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import deepspeed
import digits
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on digits with DeepSpeed, as one rank of a job.", allow_abbrev=False)
    digits.add_options(parser)
    parser.set_defaults(checkpoint=Path("digits-deepspeed"))
    parser.add_argument("--local_rank", type=int, default=0, help="given by DeepSpeed's launcher")
    deepspeed.add_config_arguments(parser)  # --deepspeed_config, by which autotuning tells what to try
    options, unknown = parser.parse_known_args()  # platforms add arguments of their own
    if not torch.cuda.is_available():
        use_gloo_alone()
    deepspeed.init_distributed()
    digits.say(f"{dist.get_world_size()} ranks; ignored arguments: {unknown}")
    train(options)
    dist.barrier()  # so that no rank takes its connections away while another still uses them
    dist.destroy_process_group()


def use_gloo_alone() -> None:
    """Else DeepSpeed compiles a faster all-reduce between the ranks of one host at the first start, which takes minutes."""
    deepspeed.ops.__compatible_ops__ = {}


def train(options: argparse.Namespace) -> None:
    torch.set_num_threads(1)  # several ranks share this machine's cores
    torch.manual_seed(0)
    stop = digits.StopRequest()
    train_set, test_set = digits.load_data()
    model = digits.make_model()
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config(options))
    done = resume(engine, options.checkpoint)
    sampler = DistributedSampler(train_set)
    batches = DataLoader(train_set, batch_size=engine.train_micro_batch_size_per_gpu(), sampler=sampler)
    for epoch in range(done + 1, done + options.epochs + 1):
        sampler.set_epoch(epoch)  # another shuffle in each epoch, the same one on all ranks
        started = time.monotonic()
        loss = train_epoch(engine, batches, stop)
        if loss is None:
            digits.say(f"stopped in epoch {epoch}: the next start repeats it")
            return
        digits.report(epoch, done + options.epochs, loss, time.monotonic() - started, model, test_set)
        # All ranks save: each has its own part of the optimizer's state.
        engine.save_checkpoint(str(options.checkpoint), tag=f"epoch_{epoch}", client_state={"epoch": epoch})


def config(options: argparse.Namespace) -> str | dict[str, Any]:
    if options.deepspeed_config:
        return options.deepspeed_config
    return {
        "train_micro_batch_size_per_gpu": options.batch_size,
        "optimizer": {"type": "Adam", "params": {"lr": options.lr, "torch_adam": True}},  # its own Adam is compiled at the first start
        "zero_optimization": {"stage": 1},
    }


def train_epoch(engine: deepspeed.DeepSpeedEngine, batches: DataLoader, stop: digits.StopRequest) -> float | None:
    """The mean loss of this rank's share of the data, or None when the job was asked to stop."""
    engine.train()
    total = 0.0
    for images, labels in batches:
        if stop.on_any_rank():
            return None
        loss = nn.functional.cross_entropy(engine(images.to(engine.device)), labels.to(engine.device))
        engine.backward(loss)
        engine.step()
        total += loss.item()
    return total / len(batches)


def resume(engine: deepspeed.DeepSpeedEngine, folder: Path) -> int:
    """How many epochs are done: those of the checkpoint, or 0 without one."""
    if not (folder / "latest").exists():
        return 0
    path, state = engine.load_checkpoint(str(folder))
    digits.say(f"resumed from {path} at epoch {state['epoch']}")
    return int(state["epoch"])


if __name__ == "__main__":
    main()
