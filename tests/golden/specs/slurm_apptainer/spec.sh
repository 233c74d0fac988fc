#!/bin/bash
#SBATCH --job-name=llm
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=1
#SBATCH --no-requeue
set -uo pipefail

# What each node's ranklaunch is told. By env, for bash has its own meaning for some names, such as UID and RANDOM.
told=(
    RANKLAUNCH_SLOTS=1
    RANKLAUNCH_ACCELERATOR=gpu
    RANKLAUNCH_GRACE_S=115
)
# One task on each node, with all CPUs that the job has there; each node's ranklaunch ends with the job's exit code, and in its own time.
env "${told[@]}" srun --ntasks="$SLURM_NNODES" --ntasks-per-node=1 --kill-on-bad-exit=0 --wait=0 --cpu-bind=none apptainer exec --nv docker://registry.example.com/team/train:1.4 ranklaunch run -- train.py
code=$?
exit "$code"
