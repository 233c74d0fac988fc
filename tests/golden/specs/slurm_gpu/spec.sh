#!/bin/bash
#SBATCH --job-name=llm
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --partition=gpu
#SBATCH --account=nlp
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --mem=400G
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --exclusive
#SBATCH --comment=night
cd -- /shared/code || exit 78
set -uo pipefail

# Ports for this job alone: another one may have the same first node.
export RANKLAUNCH_MASTER_PORT="${RANKLAUNCH_MASTER_PORT:-$((20000 + SLURM_JOB_ID % 3000 * 4))}"
export RANKLAUNCH_MUSTER_PORT="${RANKLAUNCH_MUSTER_PORT:-$((20001 + SLURM_JOB_ID % 3000 * 4))}"

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

# What each node's ranklaunch is told. By env, for bash has its own meaning for some names, such as UID and RANDOM.
told=(
    RANKLAUNCH_SLOTS=8
    RANKLAUNCH_ACCELERATOR=gpu
    RANKLAUNCH_METHOD=torchrun
    'NOTE=it'"'"'s $(x)
`y`'
)
# One task on each node, with all CPUs that the job has there; each node's ranklaunch ends with the job's exit code, and in its own time.
env "${told[@]}" srun --ntasks="$SLURM_NNODES" --ntasks-per-node=1 --kill-on-bad-exit=0 --wait=0 --cpu-bind=none ranklaunch run -- train.py --text 'a '"'"'b'"'"' $c'
code=$?
case $code in
    0|2|69|76|78) ;;
    *)
        if ((${SLURM_RESTART_COUNT:-0} < 2)); then
            scontrol requeue "$SLURM_JOB_ID"
        fi
        ;;
esac
exit "$code"
