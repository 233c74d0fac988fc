#!/bin/sh
# local, node 2 of 3, method spawn (option --method spawn)
# first: wait for muster 3 nodes at n0:18889
(
set -eu
mkdir -p /workspace/ranklaunch-logs/attempt_1
set --
env RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 RANK=3 LOCAL_RANK=0 WORLD_SIZE=6 LOCAL_WORLD_SIZE=3 \
  GROUP_RANK=2 MASTER_ADDR=n0 MASTER_PORT=29500 python -u train.py &
set -- "$@" "$!"
env RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 RANK=4 LOCAL_RANK=1 WORLD_SIZE=6 LOCAL_WORLD_SIZE=3 \
  GROUP_RANK=2 MASTER_ADDR=n0 MASTER_PORT=29500 python -u train.py &
set -- "$@" "$!"
env RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 RANK=5 LOCAL_RANK=2 WORLD_SIZE=6 LOCAL_WORLD_SIZE=3 \
  GROUP_RANK=2 MASTER_ADDR=n0 MASTER_PORT=29500 python -u train.py &
set -- "$@" "$!"
status=0
for pid in "$@"; do wait "$pid" || status=$?; done
exit "$status"
)
