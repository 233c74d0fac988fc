#!/bin/bash
#SBATCH --job-name=llm
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gres=npu:8
#SBATCH --time=120
#SBATCH --signal=TERM@60
#SBATCH --no-requeue
set -uo pipefail
export RANKLAUNCH_SLOTS=8
export RANKLAUNCH_ACCELERATOR=npu

# One task on each node, with all CPUs that the job has there; each node's ranklaunch ends with the job's exit code, and in its own time.
srun --ntasks="$SLURM_NNODES" --ntasks-per-node=1 --cpu-bind=none --kill-on-bad-exit=0 --wait=0 '--container-image=registry.example.com#team/train:1.4' ranklaunch run -- train.py
code=$?
exit "$code"
