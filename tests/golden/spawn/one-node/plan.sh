#!/bin/sh
# modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38, node 0 of 1, method spawn (MA_RUN_METHOD=spawn)
(
set -eu
mkdir -p /home/ma-user/modelarts/log/attempt_1
export PYTHONFAULTHANDLER=1
export PYTHONPATH=/opt/ranklaunch/rankside/path
export RANKLAUNCH_RECORDS_DIR=/home/ma-user/modelarts/log/attempt_1/records/node_0
export ASCEND_PROCESS_LOG_PATH=/home/ma-user/modelarts/log/attempt_1/ascend
set --
env RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 HCCL_WHITELIST_DISABLE=1 RANK=0 \
  LOCAL_RANK=0 WORLD_SIZE=8 LOCAL_WORLD_SIZE=8 GROUP_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 \
  python -u train.py --epochs=3 --data_url=/home/ma-user/modelarts/inputs/data_url_0 &
set -- "$@" "$!"
env RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 HCCL_WHITELIST_DISABLE=1 RANK=1 \
  LOCAL_RANK=1 WORLD_SIZE=8 LOCAL_WORLD_SIZE=8 GROUP_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 \
  python -u train.py --epochs=3 --data_url=/home/ma-user/modelarts/inputs/data_url_0 &
set -- "$@" "$!"
env RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 HCCL_WHITELIST_DISABLE=1 RANK=2 \
  LOCAL_RANK=2 WORLD_SIZE=8 LOCAL_WORLD_SIZE=8 GROUP_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 \
  python -u train.py --epochs=3 --data_url=/home/ma-user/modelarts/inputs/data_url_0 &
set -- "$@" "$!"
env RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 HCCL_WHITELIST_DISABLE=1 RANK=3 \
  LOCAL_RANK=3 WORLD_SIZE=8 LOCAL_WORLD_SIZE=8 GROUP_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 \
  python -u train.py --epochs=3 --data_url=/home/ma-user/modelarts/inputs/data_url_0 &
set -- "$@" "$!"
env RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 HCCL_WHITELIST_DISABLE=1 RANK=4 \
  LOCAL_RANK=4 WORLD_SIZE=8 LOCAL_WORLD_SIZE=8 GROUP_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 \
  python -u train.py --epochs=3 --data_url=/home/ma-user/modelarts/inputs/data_url_0 &
set -- "$@" "$!"
env RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 HCCL_WHITELIST_DISABLE=1 RANK=5 \
  LOCAL_RANK=5 WORLD_SIZE=8 LOCAL_WORLD_SIZE=8 GROUP_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 \
  python -u train.py --epochs=3 --data_url=/home/ma-user/modelarts/inputs/data_url_0 &
set -- "$@" "$!"
env RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 HCCL_WHITELIST_DISABLE=1 RANK=6 \
  LOCAL_RANK=6 WORLD_SIZE=8 LOCAL_WORLD_SIZE=8 GROUP_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 \
  python -u train.py --epochs=3 --data_url=/home/ma-user/modelarts/inputs/data_url_0 &
set -- "$@" "$!"
env RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 HCCL_WHITELIST_DISABLE=1 RANK=7 \
  LOCAL_RANK=7 WORLD_SIZE=8 LOCAL_WORLD_SIZE=8 GROUP_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 \
  python -u train.py --epochs=3 --data_url=/home/ma-user/modelarts/inputs/data_url_0 &
set -- "$@" "$!"
status=0
for pid in "$@"; do wait "$pid" || status=$?; done
exit "$status"
)
