#!/bin/bash
#flux: --job-name=digits
#flux: -N 2
#flux: -n 2
#flux: -c 64
#flux: -g 8
#flux: --exclusive
#flux: -t 240m
#flux: --queue=gpu

# The lines of batch.setup. They come before set -u, with which many sourced scripts fail, such as conda's.
module load cuda
source .venv/bin/activate

set -uo pipefail

# The key by which this job's nodes know each other: a private file, made once, in a home folder that all hosts share.
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
# Variables of each node's ranklaunch. Set by env, because bash reserves some names, such as UID.
variables=(
    RANKLAUNCH_SLOTS=8
    RANKLAUNCH_ACCELERATOR=gpu
    RANKLAUNCH_METHOD=torchrun
)
# One task on each node. It asks Flux for the hosts of all nodes, which no variable has.
flux run -N 2 -n 2 -c 64 -g 8 /bin/bash -c 'RANKLAUNCH_HOSTS=$(flux hostlist -e -d , local) || exit 78; export RANKLAUNCH_HOSTS; exec env "$@"' bash "${variables[@]}" ranklaunch run -- examples/ddp_digits.py --epochs 5
