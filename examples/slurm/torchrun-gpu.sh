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

# What the nodes know each other by: a key of yours, made once, which nobody else can read.
if [[ -z ${RANKLAUNCH_SECRET:-}${RANKLAUNCH_SECRET_FILE:-} && -n ${HOME:-} ]]; then
    key=$HOME/.config/ranklaunch/key
    if [[ ! -e $key ]]; then
        (
            umask 077
            mkdir -p -- "${key%/*}" && head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n' >"$key.$SLURM_JOB_ID" &&
                ln -- "$key.$SLURM_JOB_ID" "$key" 2>/dev/null  # unless another job has been first
            rm -f -- "$key.$SLURM_JOB_ID"
        )
    fi
    if [[ $(stat -Lc %a-%u -- "$key") == "600-$UID" ]]; then
        RANKLAUNCH_SECRET=$(<"$key")
        export RANKLAUNCH_SECRET
    else
        echo "$key: not used as the key of this job's nodes: expected a file of yours with mode 0600" >&2
    fi
fi

# One task on each node, with all CPUs that the job has there; each node's ranklaunch ends with the job's exit code, and in its own time.
srun --ntasks="$SLURM_NNODES" --ntasks-per-node=1 --cpu-bind=none --kill-on-bad-exit=0 --wait=0 ranklaunch run -- examples/ddp_digits.py --epochs 5
code=$?
exit "$code"
