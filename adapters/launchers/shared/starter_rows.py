"""The rows of starters.toml. tools/starters.py writes this file (make generate)."""

from __future__ import annotations

# fmt: off
ROWS: tuple[dict[str, object], ...] = (
    {
        "names": (
            "torchrun",
            "python -m torch.distributed.run",
            "python -m torch.distributed.launch",
        ),
        "method": "torchrun",
        "options": "torchrun",
        "nodes": "--nnodes",
        "variables": "PET_",
        "node": "--node_rank",
        "address": "--master_addr",
        "endpoint": "--rdzv_endpoint",
    },
    {
        "names": (
            "ft_launcher",
            "hyperpodrun",
        ),
        "options": "torchrun",
        "nodes": "--nnodes",
        "variables": "PET_",
        "node": "--node_rank",
        "address": "--master_addr",
        "endpoint": "--rdzv_endpoint",
    },
    {
        "names": (
            "dlrover-run",
            "python -m dlrover.trainer.torch.main",
        ),
        "nodes": "--nnodes",
        "variables": "PET_",
    },
    {
        "names": (
            "accelerate launch",
            "accelerate-launch",
            "python -m accelerate.commands.launch",
        ),
        "method": "accelerate",
        "options": "accelerate",
        "nodes": "--num_machines",
        "node": "--machine_rank",
        "address": "--main_process_ip",
    },
    {
        "names": (
            "deepspeed",
            "deepspeed.pt",
            "ds",
            "python -m deepspeed.launcher.runner",
        ),
        "method": "deepspeed",
        "options": "deepspeed",
        "nodes": "--no_ssh",
        "node": "--node_rank",
        "address": "--master_addr",
    },
    {
        "names": (
            "msrun",
        ),
        "method": "msrun",
        "options": "msrun",
        "nodes": "--master_addr",
        "node": "--node_rank",
        "address": "--master_addr",
    },
    {
        "names": (
            "mpirun",
            "mpiexec",
            "orterun",
            "prterun",
            "mpirun.openmpi",
            "mpiexec.openmpi",
            "mpiexec.hydra",
            "mpirun.mpich",
            "horovodrun",
            "python -m horovod.runner",
        ),
        "method": "mpirun",
        "everywhere": True,
    },
    {
        "names": (
            "ranklaunch run",
            "python -m ranklaunch run",
        ),
        "same_job": True,
    },
    {
        "names": (
            "python -m paddle.distributed.launch",
            "fleetrun",
        ),
        "nodes": "--nnodes",
        "variables": "PADDLE_",
    },
    {
        "names": (
            "python -m oneflow.distributed.launch",
        ),
        "nodes": "--nnodes",
        "node": "--node_rank",
        "address": "--master_addr",
    },
    {
        "names": (
            "bpslaunch",
            "composer",
            "colossalai run",
            "torchx run",
            "python -m areal.launcher.local",
        ),
    },
    {
        "names": (
            "fabric run",
            "lightning run",
        ),
        "nodes": "--num-nodes",
        "node": "--node-rank",
        "address": "--main-address",
    },
    {
        "names": (
            "llamafactory-cli train",
            "lmf train",
            "python -m llamafactory.cli train",
        ),
    },
    {
        "names": (
            "swift sft",
            "swift pt",
            "swift rlhf",
            "swift infer",
            "swift eval",
        ),
        "if_any": (
            "NPROC_PER_NODE",
            "NNODES",
        ),
    },
    {
        "names": (
            "megatron sft",
            "megatron pt",
            "megatron rlhf",
        ),
    },
    {
        "names": (
            "axolotl train",
            "flagscale train",
            "nemo llm",
            "trl sft",
            "trl dpo",
            "trl grpo",
            "trl kto",
            "trl reward",
            "trl rloo",
        ),
    },
    {
        "names": (
            "xtuner train",
        ),
    },
    {
        "names": (
            "mim train",
        ),
        "if_any": (
            "--launcher",
        ),
    },
    {
        "names": (
            "tune run",
        ),
        "if_any": (
            "--nnodes",
            "--nproc_per_node",
            "--nproc-per-node",
            "--standalone",
        ),
        "options": "torchrun",
        "nodes": "--nnodes",
        "node": "--node_rank",
        "address": "--master_addr",
        "endpoint": "--rdzv_endpoint",
    },
    {
        "names": (
            "paddleformers-cli train",
            "erniekit train",
        ),
    },
    {
        "names": (
            "ray start",
            "ray job",
            "ray submit",
            "ray symmetric-run",
            "python -m verl.trainer.main_ppo",
            "python -m verl.trainer.main_generation",
            "python -m openrlhf.cli.train_ppo_ray",
        ),
    },
)
