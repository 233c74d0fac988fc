#!/bin/bash
#flux: --job-name=digits
#flux: -N 2
#flux: -n 2
#flux: -c 64
#flux: -g 8
#flux: --exclusive
#flux: -t 240m
#flux: --queue=gpu

# The lines of batch.setup. They stand before set -u, with which much that is sourced, as for conda, does not work.
module load cuda
source .venv/bin/activate

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
# What each node's ranklaunch is told. By env, for bash has its own meaning for some names, such as UID.
told=(
    RANKLAUNCH_SLOTS=8
    RANKLAUNCH_ACCELERATOR=gpu
    RANKLAUNCH_METHOD=torchrun
)
# One task on each node, which asks who the others are: no variable says it.
flux run -N 2 -n 2 -c 64 -g 8 /bin/bash -c 'RANKLAUNCH_HOSTS=$(flux hostlist -e -d , local) || exit 78; export RANKLAUNCH_HOSTS; exec env "$@"' bash "${told[@]}" ranklaunch run -- examples/ddp_digits.py --epochs 5
