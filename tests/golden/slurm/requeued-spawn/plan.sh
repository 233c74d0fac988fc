#!/bin/sh
# my job-81726.0, node 1 of 2, method spawn (option --method spawn)
# first: wait for muster 2 nodes at node001:18889
(
set -eu
mkdir -p /workspace/ranklaunch-logs/job_81726.0/node_1/attempt_2
set --
env RANKLAUNCH_ATTEMPT=2 PYTHONUNBUFFERED=1 RANK=4 LOCAL_RANK=0 WORLD_SIZE=8 LOCAL_WORLD_SIZE=4 \
  GROUP_RANK=1 MASTER_ADDR=node001 MASTER_PORT=29500 python -u train.py &
set -- "$@" "$!"
env RANKLAUNCH_ATTEMPT=2 PYTHONUNBUFFERED=1 RANK=5 LOCAL_RANK=1 WORLD_SIZE=8 LOCAL_WORLD_SIZE=4 \
  GROUP_RANK=1 MASTER_ADDR=node001 MASTER_PORT=29500 python -u train.py &
set -- "$@" "$!"
env RANKLAUNCH_ATTEMPT=2 PYTHONUNBUFFERED=1 RANK=6 LOCAL_RANK=2 WORLD_SIZE=8 LOCAL_WORLD_SIZE=4 \
  GROUP_RANK=1 MASTER_ADDR=node001 MASTER_PORT=29500 python -u train.py &
set -- "$@" "$!"
env RANKLAUNCH_ATTEMPT=2 PYTHONUNBUFFERED=1 RANK=7 LOCAL_RANK=3 WORLD_SIZE=8 LOCAL_WORLD_SIZE=4 \
  GROUP_RANK=1 MASTER_ADDR=node001 MASTER_PORT=29500 python -u train.py &
set -- "$@" "$!"
status=0
for pid in "$@"; do wait "$pid" || status=$?; done
exit "$status"
)
