#!/bin/sh
# gpt, node 1 of 2, method spawn (option --method spawn)
# first: wait for muster 2 nodes at gpt-workers-0-0.gpt:18889
(
set -eu
mkdir -p /workspace/ranklaunch-logs/node_1/attempt_1
set --
env RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 RANK=1 LOCAL_RANK=0 WORLD_SIZE=3 LOCAL_WORLD_SIZE=2 \
  GROUP_RANK=1 MASTER_ADDR=gpt-workers-0-0.gpt MASTER_PORT=29500 python -u train.py &
set -- "$@" "$!"
env RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 RANK=2 LOCAL_RANK=1 WORLD_SIZE=3 LOCAL_WORLD_SIZE=2 \
  GROUP_RANK=1 MASTER_ADDR=gpt-workers-0-0.gpt MASTER_PORT=29500 python -u train.py &
set -- "$@" "$!"
status=0
for pid in "$@"; do wait "$pid" || status=$?; done
exit "$status"
)
