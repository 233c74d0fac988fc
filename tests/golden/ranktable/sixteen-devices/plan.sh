#!/bin/sh
# modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38, node 1 of 2, method ranktable (a rank table is given (/user/config/jobstart_hccl.json))
# first: wait for muster 2 nodes at ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-0.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38:18889
(
set -eu
mkdir -p /workspace/ranklaunch-logs/attempt_1
printf %s '{"status": "completed", "version": "1.0", "server_count": "2", "server_list": [{"server_id": "192.0.2.11", "device": [{"device_id": "0", "device_ip": "198.51.100.17", "rank_id": "0"}, {"device_id": "1", "device_ip": "198.51.100.18", "rank_id": "1"}, {"device_id": "2", "device_ip": "198.51.100.19", "rank_id": "2"}, {"device_id": "3", "device_ip": "198.51.100.20", "rank_id": "3"}, {"device_id": "4", "device_ip": "198.51.100.21", "rank_id": "4"}, {"device_id": "5", "device_ip": "198.51.100.22", "rank_id": "5"}, {"device_id": "6", "device_ip": "198.51.100.23", "rank_id": "6"}, {"device_id": "7", "device_ip": "198.51.100.24", "rank_id": "7"}, {"device_id": "8", "device_ip": "198.51.100.25", "rank_id": "8"}, {"device_id": "9", "device_ip": "198.51.100.26", "rank_id": "9"}, {"device_id": "10", "device_ip": "198.51.100.27", "rank_id": "10"}, {"device_id": "11", "device_ip": "198.51.100.28", "rank_id": "11"}, {"device_id": "12", "device_ip": "198.51.100.29", "rank_id": "12"}, {"device_id": "13", "device_ip": "198.51.100.30", "rank_id": "13"}, {"device_id": "14", "device_ip": "198.51.100.31", "rank_id": "14"}, {"device_id": "15", "device_ip": "198.51.100.32", "rank_id": "15"}]}, {"server_id": "192.0.2.12", "device": [{"device_id": "0", "device_ip": "198.51.100.1", "rank_id": "16"}, {"device_id": "1", "device_ip": "198.51.100.2", "rank_id": "17"}, {"device_id": "2", "device_ip": "198.51.100.3", "rank_id": "18"}, {"device_id": "3", "device_ip": "198.51.100.4", "rank_id": "19"}, {"device_id": "4", "device_ip": "198.51.100.5", "rank_id": "20"}, {"device_id": "5", "device_ip": "198.51.100.6", "rank_id": "21"}, {"device_id": "6", "device_ip": "198.51.100.7", "rank_id": "22"}, {"device_id": "7", "device_ip": "198.51.100.8", "rank_id": "23"}, {"device_id": "8", "device_ip": "198.51.100.9", "rank_id": "24"}, {"device_id": "9", "device_ip": "198.51.100.10", "rank_id": "25"}, {"device_id": "10", "device_ip": "198.51.100.11", "rank_id": "26"}, {"device_id": "11", "device_ip": "198.51.100.12", "rank_id": "27"}, {"device_id": "12", "device_ip": "198.51.100.13", "rank_id": "28"}, {"device_id": "13", "device_ip": "198.51.100.14", "rank_id": "29"}, {"device_id": "14", "device_ip": "198.51.100.15", "rank_id": "30"}, {"device_id": "15", "device_ip": "198.51.100.16", "rank_id": "31"}]}]}
' > /workspace/ranklaunch-logs/attempt_1/ranktable.json
chmod 0600 /workspace/ranklaunch-logs/attempt_1/ranktable.json
set --
env -u RANK_TABLE_FILE RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 \
  HCCL_WHITELIST_DISABLE=1 RANK_TABLE_FILE=/workspace/ranklaunch-logs/attempt_1/ranktable.json \
  ASCEND_DEVICE_ID=0 DEVICE_ID=0 RANK_ID=16 RANK_SIZE=32 \
  ASCEND_PROCESS_LOG_PATH=/workspace/ranklaunch-logs/attempt_1/ascend/rank_16 python -u train.py \
  --epochs=3 &
set -- "$@" "$!"
env -u RANK_TABLE_FILE RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 \
  HCCL_WHITELIST_DISABLE=1 RANK_TABLE_FILE=/workspace/ranklaunch-logs/attempt_1/ranktable.json \
  ASCEND_DEVICE_ID=1 DEVICE_ID=1 RANK_ID=17 RANK_SIZE=32 \
  ASCEND_PROCESS_LOG_PATH=/workspace/ranklaunch-logs/attempt_1/ascend/rank_17 python -u train.py \
  --epochs=3 &
set -- "$@" "$!"
env -u RANK_TABLE_FILE RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 \
  HCCL_WHITELIST_DISABLE=1 RANK_TABLE_FILE=/workspace/ranklaunch-logs/attempt_1/ranktable.json \
  ASCEND_DEVICE_ID=2 DEVICE_ID=2 RANK_ID=18 RANK_SIZE=32 \
  ASCEND_PROCESS_LOG_PATH=/workspace/ranklaunch-logs/attempt_1/ascend/rank_18 python -u train.py \
  --epochs=3 &
set -- "$@" "$!"
env -u RANK_TABLE_FILE RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 \
  HCCL_WHITELIST_DISABLE=1 RANK_TABLE_FILE=/workspace/ranklaunch-logs/attempt_1/ranktable.json \
  ASCEND_DEVICE_ID=3 DEVICE_ID=3 RANK_ID=19 RANK_SIZE=32 \
  ASCEND_PROCESS_LOG_PATH=/workspace/ranklaunch-logs/attempt_1/ascend/rank_19 python -u train.py \
  --epochs=3 &
set -- "$@" "$!"
env -u RANK_TABLE_FILE RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 \
  HCCL_WHITELIST_DISABLE=1 RANK_TABLE_FILE=/workspace/ranklaunch-logs/attempt_1/ranktable.json \
  ASCEND_DEVICE_ID=4 DEVICE_ID=4 RANK_ID=20 RANK_SIZE=32 \
  ASCEND_PROCESS_LOG_PATH=/workspace/ranklaunch-logs/attempt_1/ascend/rank_20 python -u train.py \
  --epochs=3 &
set -- "$@" "$!"
env -u RANK_TABLE_FILE RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 \
  HCCL_WHITELIST_DISABLE=1 RANK_TABLE_FILE=/workspace/ranklaunch-logs/attempt_1/ranktable.json \
  ASCEND_DEVICE_ID=5 DEVICE_ID=5 RANK_ID=21 RANK_SIZE=32 \
  ASCEND_PROCESS_LOG_PATH=/workspace/ranklaunch-logs/attempt_1/ascend/rank_21 python -u train.py \
  --epochs=3 &
set -- "$@" "$!"
env -u RANK_TABLE_FILE RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 \
  HCCL_WHITELIST_DISABLE=1 RANK_TABLE_FILE=/workspace/ranklaunch-logs/attempt_1/ranktable.json \
  ASCEND_DEVICE_ID=6 DEVICE_ID=6 RANK_ID=22 RANK_SIZE=32 \
  ASCEND_PROCESS_LOG_PATH=/workspace/ranklaunch-logs/attempt_1/ascend/rank_22 python -u train.py \
  --epochs=3 &
set -- "$@" "$!"
env -u RANK_TABLE_FILE RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 \
  HCCL_WHITELIST_DISABLE=1 RANK_TABLE_FILE=/workspace/ranklaunch-logs/attempt_1/ranktable.json \
  ASCEND_DEVICE_ID=7 DEVICE_ID=7 RANK_ID=23 RANK_SIZE=32 \
  ASCEND_PROCESS_LOG_PATH=/workspace/ranklaunch-logs/attempt_1/ascend/rank_23 python -u train.py \
  --epochs=3 &
set -- "$@" "$!"
env -u RANK_TABLE_FILE RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 \
  HCCL_WHITELIST_DISABLE=1 RANK_TABLE_FILE=/workspace/ranklaunch-logs/attempt_1/ranktable.json \
  ASCEND_DEVICE_ID=8 DEVICE_ID=8 RANK_ID=24 RANK_SIZE=32 \
  ASCEND_PROCESS_LOG_PATH=/workspace/ranklaunch-logs/attempt_1/ascend/rank_24 python -u train.py \
  --epochs=3 &
set -- "$@" "$!"
env -u RANK_TABLE_FILE RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 \
  HCCL_WHITELIST_DISABLE=1 RANK_TABLE_FILE=/workspace/ranklaunch-logs/attempt_1/ranktable.json \
  ASCEND_DEVICE_ID=9 DEVICE_ID=9 RANK_ID=25 RANK_SIZE=32 \
  ASCEND_PROCESS_LOG_PATH=/workspace/ranklaunch-logs/attempt_1/ascend/rank_25 python -u train.py \
  --epochs=3 &
set -- "$@" "$!"
env -u RANK_TABLE_FILE RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 \
  HCCL_WHITELIST_DISABLE=1 RANK_TABLE_FILE=/workspace/ranklaunch-logs/attempt_1/ranktable.json \
  ASCEND_DEVICE_ID=10 DEVICE_ID=10 RANK_ID=26 RANK_SIZE=32 \
  ASCEND_PROCESS_LOG_PATH=/workspace/ranklaunch-logs/attempt_1/ascend/rank_26 python -u train.py \
  --epochs=3 &
set -- "$@" "$!"
env -u RANK_TABLE_FILE RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 \
  HCCL_WHITELIST_DISABLE=1 RANK_TABLE_FILE=/workspace/ranklaunch-logs/attempt_1/ranktable.json \
  ASCEND_DEVICE_ID=11 DEVICE_ID=11 RANK_ID=27 RANK_SIZE=32 \
  ASCEND_PROCESS_LOG_PATH=/workspace/ranklaunch-logs/attempt_1/ascend/rank_27 python -u train.py \
  --epochs=3 &
set -- "$@" "$!"
env -u RANK_TABLE_FILE RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 \
  HCCL_WHITELIST_DISABLE=1 RANK_TABLE_FILE=/workspace/ranklaunch-logs/attempt_1/ranktable.json \
  ASCEND_DEVICE_ID=12 DEVICE_ID=12 RANK_ID=28 RANK_SIZE=32 \
  ASCEND_PROCESS_LOG_PATH=/workspace/ranklaunch-logs/attempt_1/ascend/rank_28 python -u train.py \
  --epochs=3 &
set -- "$@" "$!"
env -u RANK_TABLE_FILE RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 \
  HCCL_WHITELIST_DISABLE=1 RANK_TABLE_FILE=/workspace/ranklaunch-logs/attempt_1/ranktable.json \
  ASCEND_DEVICE_ID=13 DEVICE_ID=13 RANK_ID=29 RANK_SIZE=32 \
  ASCEND_PROCESS_LOG_PATH=/workspace/ranklaunch-logs/attempt_1/ascend/rank_29 python -u train.py \
  --epochs=3 &
set -- "$@" "$!"
env -u RANK_TABLE_FILE RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 \
  HCCL_WHITELIST_DISABLE=1 RANK_TABLE_FILE=/workspace/ranklaunch-logs/attempt_1/ranktable.json \
  ASCEND_DEVICE_ID=14 DEVICE_ID=14 RANK_ID=30 RANK_SIZE=32 \
  ASCEND_PROCESS_LOG_PATH=/workspace/ranklaunch-logs/attempt_1/ascend/rank_30 python -u train.py \
  --epochs=3 &
set -- "$@" "$!"
env -u RANK_TABLE_FILE RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 \
  HCCL_WHITELIST_DISABLE=1 RANK_TABLE_FILE=/workspace/ranklaunch-logs/attempt_1/ranktable.json \
  ASCEND_DEVICE_ID=15 DEVICE_ID=15 RANK_ID=31 RANK_SIZE=32 \
  ASCEND_PROCESS_LOG_PATH=/workspace/ranklaunch-logs/attempt_1/ascend/rank_31 python -u train.py \
  --epochs=3 &
set -- "$@" "$!"
status=0
for pid in "$@"; do wait "$pid" || status=$?; done
exit "$status"
)
