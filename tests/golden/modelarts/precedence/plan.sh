#!/bin/sh
# mine, node 2 of 3, method spawn (option --method spawn)
# first: wait for muster 3 nodes at 192.0.2.1:18889
(
set -eu
mkdir -p /tmp/logs/attempt_1
exec env RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 HCCL_WHITELIST_DISABLE=1 RANK=2 \
  LOCAL_RANK=0 WORLD_SIZE=3 LOCAL_WORLD_SIZE=1 GROUP_RANK=2 MASTER_ADDR=192.0.2.1 MASTER_PORT=29500 \
  python -u train.py --epochs=3 --data_url=/home/ma-user/modelarts/inputs/data_url_0
)
