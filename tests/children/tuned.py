"""Trains nothing: says how fast it would be with its DeepSpeed configuration, as DeepSpeed does, and dies where that needs too much memory.

The best is at micro-batch 6 of stage 2. Memory: of the model by the stage, and one of UNIT for each sample of a micro-batch.
"""

import json
import os
import sys
import time

PARAMS = 1_000_000_000
UNIT = 1 << 30
LIMIT = int(os.environ.get("TUNED_LIMIT", str(40 * UNIT)))
STAGES = {0: 0.8, 1: 0.9, 2: 1.0, 3: 0.85}


def main() -> None:
    with open(sys.argv[sys.argv.index("--deepspeed_config") + 1], encoding="utf-8") as file:
        config = json.load(file)
    section = config.get("autotuning", {})
    stage, micro = config.get("zero_optimization", {}).get("stage", 0), config["train_micro_batch_size_per_gpu"]
    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    time.sleep(float(os.environ.get("TUNED_S", "0")))
    if section.get("model_info", {}).get("profile"):
        if rank == 0:
            write(section["model_info_path"], {"num_params": PARAMS, "trainable_num_params": PARAMS, "activation_mem_per_gpu": UNIT // 2})
        return
    if not section.get("enabled"):
        print(f"trained with stage {stage} and micro-batch {micro}", flush=True)
        return
    if f"{stage}:{micro}" in os.environ.get("TUNED_HANGS", "").split(","):
        time.sleep(10_000)
    if needed(stage, micro, ranks) > LIMIT:
        print(f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {micro} GiB.", file=sys.stderr)
        sys.exit(1)
    samples_a_second = 1000 * STAGES[stage] * micro / (micro**2 + 36) * 12 / config.get("gradient_accumulation_steps", 1) ** 0.01
    if rank == 0:
        latency_us = config["train_batch_size"] / samples_a_second * 1e6
        write(section["metric_path"], {"latency": latency_us, "FLOPS_per_gpu": 1e9, "throughput": samples_a_second})


def needed(stage: int, micro: int, ranks: int) -> int:
    parts = [2.0, 2.0, 16.0]  # parameters, gradients, optimizer: bytes of each parameter
    for i in range(stage):
        parts[2 - i] /= ranks
    return int(PARAMS * sum(parts)) + micro * UNIT


def write(path: str, values: dict) -> None:
    with open(path, "w", encoding="utf-8") as file:
        json.dump(values, file)


if __name__ == "__main__":
    main()
