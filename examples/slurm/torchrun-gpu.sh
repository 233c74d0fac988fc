#!/bin/bash
#SBATCH --job-name=digits
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --partition=gpu
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --time=04:00:00
#SBATCH --signal=TERM@60
#SBATCH --requeue
#SBATCH --open-mode=append

# The lines of slurm.setup. They come before set -u, with which many sourced scripts fail, such as conda's.
module load cuda
source .venv/bin/activate

set -uo pipefail

# Ports of this job alone: another job may have the same first node.
export RANKLAUNCH_MASTER_PORT="${RANKLAUNCH_MASTER_PORT:-$((20000 + SLURM_JOB_ID % 3000 * 4))}"
export RANKLAUNCH_MUSTER_PORT="${RANKLAUNCH_MUSTER_PORT:-$((20001 + SLURM_JOB_ID % 3000 * 4))}"

# The key by which this job's nodes know each other: a private file, made once.
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

# The log folder of all starts, and the job's id for scontrol: SLURM_JOB_ID may mean a whole array.
export RANKLAUNCH_LOG_DIR="${RANKLAUNCH_LOG_DIR:-ranklaunch-logs/job_$SLURM_JOB_ID.0}"
job=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}
job=${job:-$SLURM_JOB_ID}
export SLURM_RESTART_COUNT="${SLURM_RESTART_COUNT:-0}"  # tells ranklaunch that Slurm restarts: no restart in place after a device fault

# Variables of each node's ranklaunch. Set by env, because bash reserves some names, such as UID and RANDOM.
variables=(
    RANKLAUNCH_SLOTS=8
    RANKLAUNCH_ACCELERATOR=gpu
    RANKLAUNCH_GRACE_S=55
    RANKLAUNCH_METHOD=torchrun
)
# One task on each node, with all CPUs of the job there. srun ends no task: each node's ranklaunch exits by itself, with the job's exit code.
env "${variables[@]}" srun --ntasks="$SLURM_NNODES" --ntasks-per-node=1 --kill-on-bad-exit=0 --wait=0 --cpu-bind=none ranklaunch run -- examples/ddp_digits.py --epochs 5
code=$?

# The verdict of node 0 has the reason of a failure, and a host to exclude.
verdict=$RANKLAUNCH_LOG_DIR
((SLURM_NNODES < 2)) || verdict+=/node_0
verdict+=/attempt_$((${SLURM_RESTART_COUNT:-0} + 1))/verdict.json
host=
if ((code)) && [[ -r $verdict ]]; then
    host=$(sed -n '/^ "suspect_host": {/,/^ }/s/^  "host": "\([A-Za-z0-9._-]*\)",*$/\1/p' -- "$verdict")
    reason=$(sed -n 's/^ "reason": "\(.*\)",*$/\1/p' -- "$verdict")
    printf -v reason %b "${reason//\\\"/\"}"
    scontrol update "JobId=$job" "Comment=${reason:0:200}"
fi
case $code in
    0|2|69|76|78) ;;
    *)
        if ((SLURM_RESTART_COUNT < 2)); then
            excluded=
            [[ $(scontrol --oneliner show job "$job") =~ ' ExcNodeList='([^' ']*) ]] &&
                excluded=${BASH_REMATCH[1]#"(null)"}
            trap '' TERM  # the requeue sends SIGTERM to this script
            if scontrol requeue "$job" && [[ -n $host ]]; then
                # Only now: Slurm refuses this while the job runs.
                scontrol update "JobId=$job" "ExcNodeList=${excluded:+$excluded,}$host"
            fi
        fi
        ;;
esac
exit "$code"
