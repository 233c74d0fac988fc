#!/bin/sh
# modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38, node 1 of 2, method spawn (MA_RUN_METHOD=spawn)
# first: wait for muster 2 nodes at ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-0.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38:18889
(
set -eu
mkdir -p /home/ma-user/modelarts/log/attempt_1
set --
env RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 HCCL_WHITELIST_DISABLE=1 RANK=2 \
  LOCAL_RANK=0 WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 GROUP_RANK=1 \
  MASTER_ADDR=ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-0.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38 \
  MASTER_PORT=29500 python -u -m my.trainer --epochs 3 &
set -- "$@" "$!"
env RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 HCCL_WHITELIST_DISABLE=1 RANK=3 \
  LOCAL_RANK=1 WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 GROUP_RANK=1 \
  MASTER_ADDR=ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-0.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38 \
  MASTER_PORT=29500 python -u -m my.trainer --epochs 3 &
set -- "$@" "$!"
status=0
for pid in "$@"; do wait "$pid" || status=$?; done
exit "$status"
)
