#!/bin/bash
#SBATCH --job-name=digits
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --partition=gpu
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --time=240
#SBATCH --signal=TERM@60
#SBATCH --no-requeue
set -uo pipefail
export RANKLAUNCH_SLOTS=8
export RANKLAUNCH_ACCELERATOR=gpu
export RANKLAUNCH_METHOD=torchrun

# One task on each node, with all CPUs that the job has there; each node's ranklaunch ends with the job's exit code, and in its own time.
srun --ntasks="$SLURM_NNODES" --ntasks-per-node=1 --cpu-bind=none --kill-on-bad-exit=0 --wait=0 ranklaunch run -- examples/ddp_digits.py --epochs 5
code=$?
exit "$code"
