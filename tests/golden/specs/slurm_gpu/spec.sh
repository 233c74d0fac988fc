#!/bin/bash
#SBATCH --job-name=llm
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --partition=gpu
#SBATCH --account=nlp
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --mem=409600M
#SBATCH --requeue
#SBATCH --exclusive
#SBATCH --comment=night
set -uo pipefail
cd -- /shared/code || exit 78
export RANKLAUNCH_SLOTS=8
export RANKLAUNCH_ACCELERATOR=gpu
export RANKLAUNCH_METHOD=torchrun
export NOTE='it'"'"'s $(x)
`y`'

# One task on each node, with all CPUs that the job has there; each node's ranklaunch ends with the job's exit code, and in its own time.
srun --ntasks="$SLURM_NNODES" --ntasks-per-node=1 --cpu-bind=none --kill-on-bad-exit=0 --wait=0 ranklaunch run -- train.py --text 'a '"'"'b'"'"' $c'
code=$?
case $code in
    0|2|69|78) ;;
    *)
        if ((${SLURM_RESTART_COUNT:-0} < 2)); then
            scontrol requeue "$SLURM_JOB_ID"
        fi
        ;;
esac
exit "$code"
