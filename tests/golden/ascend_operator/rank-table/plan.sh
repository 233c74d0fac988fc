#!/bin/sh
# llama, node 1 of 2, method ranktable (a rank table is given (/user/serverid/devindex/config/hccl.json))
# first: wait for muster 2 nodes at 10.96.201.77:18889
(
set -eu
mkdir -p /workspace/ranklaunch-logs/node_1/attempt_1
printf %s '{"status": "completed", "server_list": [{"server_id": "192.0.2.10", "container_ip": "10.244.0.5", "device": [{"device_id": "0", "device_ip": "198.51.100.0", "rank_id": "0"}, {"device_id": "1", "device_ip": "198.51.100.1", "rank_id": "1"}, {"device_id": "2", "device_ip": "198.51.100.2", "rank_id": "2"}, {"device_id": "3", "device_ip": "198.51.100.3", "rank_id": "3"}, {"device_id": "4", "device_ip": "198.51.100.4", "rank_id": "4"}, {"device_id": "5", "device_ip": "198.51.100.5", "rank_id": "5"}, {"device_id": "6", "device_ip": "198.51.100.6", "rank_id": "6"}, {"device_id": "7", "device_ip": "198.51.100.7", "rank_id": "7"}]}, {"server_id": "192.0.2.11", "container_ip": "10.244.1.5", "device": [{"device_id": "0", "device_ip": "198.51.100.10", "rank_id": "8"}, {"device_id": "1", "device_ip": "198.51.100.11", "rank_id": "9"}, {"device_id": "2", "device_ip": "198.51.100.12", "rank_id": "10"}, {"device_id": "3", "device_ip": "198.51.100.13", "rank_id": "11"}, {"device_id": "4", "device_ip": "198.51.100.14", "rank_id": "12"}, {"device_id": "5", "device_ip": "198.51.100.15", "rank_id": "13"}, {"device_id": "6", "device_ip": "198.51.100.16", "rank_id": "14"}, {"device_id": "7", "device_ip": "198.51.100.17", "rank_id": "15"}]}], "server_count": "2", "version": "1.0"}' > /workspace/ranklaunch-logs/node_1/attempt_1/ranktable.json
chmod 0600 /workspace/ranklaunch-logs/node_1/attempt_1/ranktable.json
set --
env -u LOCAL_RANK -u LOCAL_WORLD_SIZE -u MASTER_ADDR -u MASTER_PORT -u RANK -u WORLD_SIZE \
  RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 HCCL_WHITELIST_DISABLE=1 \
  RANK_TABLE_FILE=/workspace/ranklaunch-logs/node_1/attempt_1/ranktable.json ASCEND_DEVICE_ID=0 \
  DEVICE_ID=0 RANK_ID=8 RANK_SIZE=16 \
  ASCEND_PROCESS_LOG_PATH=/workspace/ranklaunch-logs/node_1/attempt_1/ascend/rank_8 python -u train.py \
  --epochs 3 &
set -- "$@" "$!"
env -u LOCAL_RANK -u LOCAL_WORLD_SIZE -u MASTER_ADDR -u MASTER_PORT -u RANK -u WORLD_SIZE \
  RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 HCCL_WHITELIST_DISABLE=1 \
  RANK_TABLE_FILE=/workspace/ranklaunch-logs/node_1/attempt_1/ranktable.json ASCEND_DEVICE_ID=1 \
  DEVICE_ID=1 RANK_ID=9 RANK_SIZE=16 \
  ASCEND_PROCESS_LOG_PATH=/workspace/ranklaunch-logs/node_1/attempt_1/ascend/rank_9 python -u train.py \
  --epochs 3 &
set -- "$@" "$!"
env -u LOCAL_RANK -u LOCAL_WORLD_SIZE -u MASTER_ADDR -u MASTER_PORT -u RANK -u WORLD_SIZE \
  RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 HCCL_WHITELIST_DISABLE=1 \
  RANK_TABLE_FILE=/workspace/ranklaunch-logs/node_1/attempt_1/ranktable.json ASCEND_DEVICE_ID=2 \
  DEVICE_ID=2 RANK_ID=10 RANK_SIZE=16 \
  ASCEND_PROCESS_LOG_PATH=/workspace/ranklaunch-logs/node_1/attempt_1/ascend/rank_10 python -u train.py \
  --epochs 3 &
set -- "$@" "$!"
env -u LOCAL_RANK -u LOCAL_WORLD_SIZE -u MASTER_ADDR -u MASTER_PORT -u RANK -u WORLD_SIZE \
  RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 HCCL_WHITELIST_DISABLE=1 \
  RANK_TABLE_FILE=/workspace/ranklaunch-logs/node_1/attempt_1/ranktable.json ASCEND_DEVICE_ID=3 \
  DEVICE_ID=3 RANK_ID=11 RANK_SIZE=16 \
  ASCEND_PROCESS_LOG_PATH=/workspace/ranklaunch-logs/node_1/attempt_1/ascend/rank_11 python -u train.py \
  --epochs 3 &
set -- "$@" "$!"
env -u LOCAL_RANK -u LOCAL_WORLD_SIZE -u MASTER_ADDR -u MASTER_PORT -u RANK -u WORLD_SIZE \
  RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 HCCL_WHITELIST_DISABLE=1 \
  RANK_TABLE_FILE=/workspace/ranklaunch-logs/node_1/attempt_1/ranktable.json ASCEND_DEVICE_ID=4 \
  DEVICE_ID=4 RANK_ID=12 RANK_SIZE=16 \
  ASCEND_PROCESS_LOG_PATH=/workspace/ranklaunch-logs/node_1/attempt_1/ascend/rank_12 python -u train.py \
  --epochs 3 &
set -- "$@" "$!"
env -u LOCAL_RANK -u LOCAL_WORLD_SIZE -u MASTER_ADDR -u MASTER_PORT -u RANK -u WORLD_SIZE \
  RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 HCCL_WHITELIST_DISABLE=1 \
  RANK_TABLE_FILE=/workspace/ranklaunch-logs/node_1/attempt_1/ranktable.json ASCEND_DEVICE_ID=5 \
  DEVICE_ID=5 RANK_ID=13 RANK_SIZE=16 \
  ASCEND_PROCESS_LOG_PATH=/workspace/ranklaunch-logs/node_1/attempt_1/ascend/rank_13 python -u train.py \
  --epochs 3 &
set -- "$@" "$!"
env -u LOCAL_RANK -u LOCAL_WORLD_SIZE -u MASTER_ADDR -u MASTER_PORT -u RANK -u WORLD_SIZE \
  RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 HCCL_WHITELIST_DISABLE=1 \
  RANK_TABLE_FILE=/workspace/ranklaunch-logs/node_1/attempt_1/ranktable.json ASCEND_DEVICE_ID=6 \
  DEVICE_ID=6 RANK_ID=14 RANK_SIZE=16 \
  ASCEND_PROCESS_LOG_PATH=/workspace/ranklaunch-logs/node_1/attempt_1/ascend/rank_14 python -u train.py \
  --epochs 3 &
set -- "$@" "$!"
env -u LOCAL_RANK -u LOCAL_WORLD_SIZE -u MASTER_ADDR -u MASTER_PORT -u RANK -u WORLD_SIZE \
  RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 HCCL_WHITELIST_DISABLE=1 \
  RANK_TABLE_FILE=/workspace/ranklaunch-logs/node_1/attempt_1/ranktable.json ASCEND_DEVICE_ID=7 \
  DEVICE_ID=7 RANK_ID=15 RANK_SIZE=16 \
  ASCEND_PROCESS_LOG_PATH=/workspace/ranklaunch-logs/node_1/attempt_1/ascend/rank_15 python -u train.py \
  --epochs 3 &
set -- "$@" "$!"
status=0
for pid in "$@"; do wait "$pid" || status=$?; done
exit "$status"
)
