#!/bin/bash
#SBATCH --job-name=llm
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=1
#SBATCH --no-requeue
set -uo pipefail
export RANKLAUNCH_SLOTS=1
export RANKLAUNCH_ACCELERATOR=gpu
export RANKLAUNCH_GRACE_S=115

# One task on each node, with all CPUs that the job has there; each node's ranklaunch ends with the job's exit code, and in its own time.
srun --ntasks="$SLURM_NNODES" --ntasks-per-node=1 --kill-on-bad-exit=0 --wait=0 --cpu-bind=none apptainer exec --nv docker://registry.example.com/team/train:1.4 ranklaunch run -- train.py
code=$?
exit "$code"
