"""Start scripts and commands in the shape of public projects, and what becomes of them on one node and on two: a table.

`train.py` stands for the project's program. Commands of projects are stand-ins that call torchrun as the project does; launchers are real.
"""

from __future__ import annotations

from dataclasses import dataclass

TRAINS = "trains"
# Options that a script makes of what it finds.
PLACE = "--nnodes $NNODES --node_rank $NODE_RANK --nproc_per_node $NPROC_PER_NODE --master_addr $MASTER_ADDR --master_port $MASTER_PORT"


@dataclass(frozen=True)
class Row:
    """shape: the project and what is started. line: the command, or the text of train.sh. one, two: what becomes of it on one node of two
    ranks and on two: TRAINS, or words of the refusal; "" if it is not tried. needs: a launcher that must be there. kind: CI runs the first
    of each."""

    shape: str
    line: str
    one: str = TRAINS
    two: str = TRAINS
    needs: str = "torch"
    kind: str = "script"
    is_command: bool = False


def command(shape: str, line: str, one: str = TRAINS, two: str = TRAINS, needs: str = "torch", kind: str = "command") -> Row:
    return Row(shape, line, one, two, needs, kind, is_command=True)


ALONE = "without --nnodes each node would train alone"
OWN = "each start ranks of their own (torchrun)"

ROWS = (
    # A project's command that starts torchrun
    command("LLaMA-Factory: llamafactory-cli train", "llamafactory-cli train c.yaml", kind="project's command"),
    Row("LLaMA-Factory: FORCE_TORCHRUN in a script", "FORCE_TORCHRUN=1 llamafactory-cli train c.yaml"),
    Row(
        "LLaMA-Factory: several nodes",
        "FORCE_TORCHRUN=1 NNODES=$NNODES NODE_RANK=$NODE_RANK MASTER_ADDR=$MASTER_ADDR MASTER_PORT=$MASTER_PORT "
        "llamafactory-cli train c.yaml",
    ),
    Row("ms-swift: swift sft with NPROC_PER_NODE", "export NPROC_PER_NODE=2\nCUDA_VISIBLE_DEVICES=0,1 swift sft --model m"),
    command("axolotl train", "axolotl train c.yaml"),
    command("xtuner train", "xtuner train c.py --deepspeed zero2"),
    command("FlagScale: flagscale train", "flagscale train aquila"),
    command("PaddleFormers: paddleformers-cli train", "paddleformers-cli train c.yaml"),
    # A Python of the user's that starts torchrun: only the run shows it
    Row("a trainer's Python that starts torchrun", "python cli.py train c.yaml", one=OWN, two=OWN, kind="seen by its ranks"),
    # torchrun
    Row("Megatron-LM: pretrain_gpt.sh", f"DISTRIBUTED_ARGS=({PLACE})\ntorchrun ${{DISTRIBUTED_ARGS[@]}} train.py --lr 1", kind="torchrun"),
    Row(
        "MindSpeed-LLM: launch behind a tee",
        "NPUS_PER_NODE=2\nMASTER_ADDR=localhost\nNNODES=1\nNODE_RANK=0\nset -o pipefail\n"
        'DISTRIBUTED_ARGS="--nproc_per_node $NPUS_PER_NODE --nnodes $NNODES --node_rank $NODE_RANK --master_addr $MASTER_ADDR '
        '--master_port 29511"\npython -m torch.distributed.launch --use-env $DISTRIBUTED_ARGS train.py | tee train.log',
        two="and its --nnodes is 1",
    ),
    Row("nanoGPT: --standalone", "torchrun --standalone --nproc_per_node=2 train.py c.py", two="with --standalone each node"),
    command("torchrun as the program", "torchrun --nproc_per_node 2 --master_port 29522 train.py", two=ALONE, kind="torchrun"),
    Row(
        "torchtitan: run_train.sh",
        'NGPU=${NGPU:-2}\ntorchrun --nproc_per_node=${NGPU} --rdzv_backend c10d --rdzv_endpoint="localhost:0" --local-ranks-filter 0 '
        "--role rank train.py",
        two=ALONE,
    ),
    Row(
        "mmdetection: dist_train.sh",
        "GPUS=2\nNNODES=${NNODES:-1}\nNODE_RANK=${NODE_RANK:-0}\nPORT=${PORT:-$MASTER_PORT}\nMASTER_ADDR=${MASTER_ADDR:-127.0.0.1}\n"
        "python -m torch.distributed.launch --use-env --nnodes=$NNODES --node_rank=$NODE_RANK --master_addr=$MASTER_ADDR "
        '--nproc_per_node=$GPUS --master_port=$PORT $(dirname "$0")/train.py c.py --launcher pytorch ${@:3}',
    ),
    Row(
        "transformers: run_glue by torch.distributed.run",
        "python -m torch.distributed.run --nproc_per_node 2 --master_port 29533 train.py",
        two=ALONE,
    ),
    Row("fairseq: a random port", 'torchrun --nproc-per-node "2" --master_port $((RANDOM % 9000 + 20000)) train.py --config c', two=ALONE),
    Row("Open-Sora: --nnodes=1", "torchrun --nnodes=1 --nproc_per_node=2 --master_port 29544 train.py c.py", two="and its --nnodes is 1"),
    Row(
        "ms-swift: train_node1.sh",
        "torchrun --master_port 29555 --nproc_per_node=2 --nnodes=2 --node_rank=0 --master_addr=127.0.0.1 train.py",
        one="",
        two="and its --node_rank is 0, where this is node 1",
    ),
    Row(
        "a static rendezvous without --node_rank",
        "torchrun --nnodes 2 --nproc_per_node 2 --master_addr $MASTER_ADDR train.py",
        one="",
        two="without --node_rank each node would be node 0",
    ),
    Row(
        "c10d at MASTER_ADDR",
        "torchrun --nnodes $NNODES --nproc_per_node 2 --rdzv_id 1 --rdzv_backend c10d --rdzv_endpoint $MASTER_ADDR:$MASTER_PORT train.py",
    ),
    Row(
        "c10d at $(hostname)",
        "torchrun --nnodes $NNODES --nproc_per_node 2 --rdzv_id 1 --rdzv_backend c10d --rdzv_endpoint $(hostname):29566 train.py",
        one="",
        two="and its --rdzv_endpoint is $(hostname):29566, which is another host on each node",
    ),
    # accelerate
    Row(
        "accelerate: --num_processes",
        "accelerate launch --multi_gpu --num_processes 2 --main_process_port 29577 train.py",
        two="without --num_machines",
        needs="accelerate",
        kind="accelerate",
    ),
    Row(
        "accelerate: several machines",
        "accelerate launch --multi_gpu --num_machines $NNODES --num_processes $((NNODES * NPROC_PER_NODE)) --machine_rank $NODE_RANK "
        "--main_process_ip $MASTER_ADDR --main_process_port $MASTER_PORT train.py",
        needs="accelerate",
    ),
    Row(
        "ms-swift: accelerate's --config_file",
        "accelerate launch --config_file two.yaml --machine_rank $NODE_RANK train.py",
        one="",
        needs="accelerate",
    ),
    Row(
        "diffusers: accelerate launch alone",
        "accelerate launch --multi_gpu --num_processes=2 --main_process_port=29588 train.py --resolution 512",
        two="without --num_machines",
        needs="accelerate",
    ),
    # DeepSpeed
    command(
        "DeepSpeed: deepspeed --num_gpus",
        "deepspeed --num_gpus 2 --master_port 29599 train.py",
        two="without --no_ssh",
        needs="deepspeed",
        kind="deepspeed",
    ),
    command("DeepSpeed: ds", "ds --num_gpus 2 --master_port 29611 train.py", two="without --no_ssh", needs="deepspeed"),
    Row(
        "OpenRLHF: deepspeed in a variable",
        'training_commands="train.py --lr 1"\ndeepspeed --num_gpus 2 --master_port 29622 $training_commands',
        two="without --no_ssh",
        needs="deepspeed",
    ),
    # msrun
    Row(
        "MindFormers: msrun_launcher.sh",
        'WORKER_NUM=8\nJOIN="False"\nset -- train.py 2\nif [ $# == 2 ]; then\n  WORKER_NUM=$2\n  SINGLE_NODE=true\nfi\n'
        'if [ "$SINGLE_NODE" == true ]; then\n  MSRUN_CMD="msrun --worker_num=$WORKER_NUM --local_worker_num=$WORKER_NUM '
        '--master_port=8119 --log_dir=msrun_log --join=$JOIN"\nfi\nEXECUTE_ORDER="$MSRUN_CMD $1"\neval $EXECUTE_ORDER',
        two="",
        needs="mindspore",
        kind="msrun",
    ),
    Row(
        "MindRLHF: msrun in both branches of an if",
        'if [ "$1" == 1 ]; then CMD="msrun --worker_num=2 --local_worker_num=2 --master_port=8120 --join=True"; '
        'else CMD="msrun --worker_num=2 --local_worker_num=2 --master_port=8121 --join=True"; fi\n$CMD train.py',
        two="without --master_addr",
        needs="mindspore",
    ),
    # MPI
    Row(
        "Horovod: mpirun",
        "mpirun -np 2 --allow-run-as-root --oversubscribe python train.py",
        two="of which one starts the ranks of all nodes",
        needs="mpirun",
        kind="mpirun",
    ),
    # The shell
    Row("a function", f"train() {{\n  torchrun {PLACE} train.py\n}}\ntrain"),
    Row("an eval", f'CMD="torchrun {PLACE} train.py"\neval $CMD'),
    Row("a retry loop", f"until torchrun {PLACE} train.py; do sleep 1; done"),
    Row("in the background, with wait", f"torchrun {PLACE} train.py &\nwait $!"),
    Row("in the background, without wait", f"nohup torchrun {PLACE} train.py > train.log 2>&1 &\nsleep 0.2", kind="left at work"),
    Row("a script that calls another", "bash inner.sh $NNODES"),
    Row("$(which torchrun)", f"$(which torchrun) {PLACE} train.py"),
    Row("a quoted array", f'L=(torchrun {PLACE})\n"${{L[@]}}" train.py'),
    Row(
        "preparation, then the training",
        f"torchrun --standalone --nproc_per_node 1 prepare.py\ntorchrun {PLACE} train.py",
        kind="two launchers",
    ),
    Row("a launcher in $(echo)", "$(echo torchrun) --nproc_per_node 2 --master_port $((20000 + RANDOM % 9000)) train.py", one=OWN, two=OWN),
    # Wrappers
    command("bash -c", "bash -c 'torchrun --nproc_per_node 2 --master_port 29633 train.py'", two=ALONE),
    command("env and nice", "env A=1 nice -n 1 torchrun --nproc_per_node 2 --master_port 29644 train.py", two=ALONE),
    Row("Slurm: srun torchrun", f"srun torchrun {PLACE} train.py", kind="wrapper"),
    Row("Apptainer: apptainer exec", f"apptainer exec --nv image.sif torchrun {PLACE} train.py"),
    Row("pixi run", f"pixi run torchrun {PLACE} train.py"),
    Row("py-spy record", f"py-spy record -o out.svg -- python -m torch.distributed.run {PLACE} train.py"),
)
