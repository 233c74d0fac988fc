#!/bin/bash
#BSUB -J llm
#BSUB -n 64
#BSUB -R "span[ptile=32]"
#BSUB -gpu "num=8"
#BSUB -W 24:00
#BSUB -q gpu
#BSUB -P nlp
#BSUB -o logs/%J.out
#BSUB -x
cd -- /shared/code || exit 78

# The lines of batch.setup. They stand before set -u, with which much that is sourced, as for conda, does not work.
module load cuda

set -uo pipefail

# What the nodes know each other by: a file of yours, made once, which nobody else can read, in a home that all hosts have.
if [[ -z ${RANKLAUNCH_SECRET_FILE:-} && -n ${HOME:-} ]]; then
    key=$HOME/.config/ranklaunch/key
    if [[ ! -e $key ]]; then
        (
            umask 077
            mkdir -p -- "${key%/*}" && head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n' >"$key.$HOSTNAME.$$" &&
                ln -- "$key.$HOSTNAME.$$" "$key" 2>/dev/null  # unless another job has been first
            rm -f -- "$key.$HOSTNAME.$$"
        )
    fi
    if [[ $(stat -Lc %a-%u -- "$key") == "600-$UID" ]]; then
        export RANKLAUNCH_SECRET_FILE=$key
    else
        echo "$key: not used as the key of this job's nodes: expected a file of yours with mode 0600" >&2
    fi
fi
job=$LSB_JOBID

# What each node's ranklaunch is told: what this shell exports does not reach it. Of a name that is there twice the last counts.
told=()
for name in PATH LD_LIBRARY_PATH PYTHONPATH VIRTUAL_ENV CONDA_PREFIX RANKLAUNCH_SECRET_FILE; do
    if [[ -n ${!name:-} ]]; then
        told+=("$name=${!name}")
    fi
done

# Ports for this job alone: another one may have the same first host.
told+=("RANKLAUNCH_MASTER_PORT=$((20000 + job % 3000 * 4))")
told+=("RANKLAUNCH_MUSTER_PORT=$((20001 + job % 3000 * 4))")
told+=(
    RANKLAUNCH_SLOTS=8
    RANKLAUNCH_ACCELERATOR=gpu
    RANKLAUNCH_METHOD=torchrun
    'NOTE=it'"'"'s $(x)
`y`'
)
program=$(command -v ranklaunch) || {
    echo "ranklaunch: not found on PATH; let a line of batch.setup bring it" >&2
    exit 69
}
# Once on each host, which without -z were once for each slot.
hosts=$(awk '!seen[$1]++ { printf "%s%s", space, $1; space = " " }' "$LSB_DJOB_HOSTFILE")
if [[ -z $hosts ]]; then
    echo "LSB_DJOB_HOSTFILE=$LSB_DJOB_HOSTFILE: no host in it" >&2
    exit 78
fi
blaunch -no-shell -z "$hosts" /bin/bash -c 'cd -- "$1" && shift && exec env "$@"' bash "$PWD" "${told[@]}" "$program" run -- train.py --text 'a '"'"'b'"'"' $c'
