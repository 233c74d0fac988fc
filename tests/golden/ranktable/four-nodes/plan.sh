#!/bin/sh
# modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38, node 2 of 4, method ranktable (MA_RUN_METHOD=ranktable)
# first: wait for muster 4 nodes at ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-0.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38:18889
(
set -eu
mkdir -p /workspace/ranklaunch-logs/attempt_1
printf %s '{"status": "completed", "version": "1.0", "server_count": "4", "server_list": [{"server_id": "192.0.2.11", "device": [{"device_id": "0", "device_ip": "198.51.100.17", "rank_id": "0"}, {"device_id": "1", "device_ip": "198.51.100.18", "rank_id": "1"}, {"device_id": "2", "device_ip": "198.51.100.19", "rank_id": "2"}, {"device_id": "3", "device_ip": "198.51.100.20", "rank_id": "3"}, {"device_id": "4", "device_ip": "198.51.100.21", "rank_id": "4"}, {"device_id": "5", "device_ip": "198.51.100.22", "rank_id": "5"}, {"device_id": "6", "device_ip": "198.51.100.23", "rank_id": "6"}, {"device_id": "7", "device_ip": "198.51.100.24", "rank_id": "7"}]}, {"server_id": "192.0.2.12", "device": [{"device_id": "0", "device_ip": "198.51.100.49", "rank_id": "8"}, {"device_id": "1", "device_ip": "198.51.100.50", "rank_id": "9"}, {"device_id": "2", "device_ip": "198.51.100.51", "rank_id": "10"}, {"device_id": "3", "device_ip": "198.51.100.52", "rank_id": "11"}, {"device_id": "4", "device_ip": "198.51.100.53", "rank_id": "12"}, {"device_id": "5", "device_ip": "198.51.100.54", "rank_id": "13"}, {"device_id": "6", "device_ip": "198.51.100.55", "rank_id": "14"}, {"device_id": "7", "device_ip": "198.51.100.56", "rank_id": "15"}]}, {"server_id": "192.0.2.13", "device": [{"device_id": "0", "device_ip": "198.51.100.1", "rank_id": "16"}, {"device_id": "1", "device_ip": "198.51.100.2", "rank_id": "17"}, {"device_id": "2", "device_ip": "198.51.100.3", "rank_id": "18"}, {"device_id": "3", "device_ip": "198.51.100.4", "rank_id": "19"}, {"device_id": "4", "device_ip": "198.51.100.5", "rank_id": "20"}, {"device_id": "5", "device_ip": "198.51.100.6", "rank_id": "21"}, {"device_id": "6", "device_ip": "198.51.100.7", "rank_id": "22"}, {"device_id": "7", "device_ip": "198.51.100.8", "rank_id": "23"}]}, {"server_id": "192.0.2.14", "device": [{"device_id": "0", "device_ip": "198.51.100.33", "rank_id": "24"}, {"device_id": "1", "device_ip": "198.51.100.34", "rank_id": "25"}, {"device_id": "2", "device_ip": "198.51.100.35", "rank_id": "26"}, {"device_id": "3", "device_ip": "198.51.100.36", "rank_id": "27"}, {"device_id": "4", "device_ip": "198.51.100.37", "rank_id": "28"}, {"device_id": "5", "device_ip": "198.51.100.38", "rank_id": "29"}, {"device_id": "6", "device_ip": "198.51.100.39", "rank_id": "30"}, {"device_id": "7", "device_ip": "198.51.100.40", "rank_id": "31"}]}]}
' > /workspace/ranklaunch-logs/attempt_1/ranktable.json
chmod 0600 /workspace/ranklaunch-logs/attempt_1/ranktable.json
set --
env -u RANK_TABLE_FILE RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 \
  HCCL_WHITELIST_DISABLE=1 RANK_TABLE_FILE=/workspace/ranklaunch-logs/attempt_1/ranktable.json \
  ASCEND_DEVICE_ID=0 DEVICE_ID=0 RANK_ID=16 RANK_SIZE=32 \
  ASCEND_PROCESS_LOG_PATH=/workspace/ranklaunch-logs/attempt_1/ascend/rank_16 python -u train.py \
  --epochs=3 --data_url=/home/ma-user/modelarts/inputs/data_url_0 &
set -- "$@" "$!"
env -u RANK_TABLE_FILE RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 \
  HCCL_WHITELIST_DISABLE=1 RANK_TABLE_FILE=/workspace/ranklaunch-logs/attempt_1/ranktable.json \
  ASCEND_DEVICE_ID=1 DEVICE_ID=1 RANK_ID=17 RANK_SIZE=32 \
  ASCEND_PROCESS_LOG_PATH=/workspace/ranklaunch-logs/attempt_1/ascend/rank_17 python -u train.py \
  --epochs=3 --data_url=/home/ma-user/modelarts/inputs/data_url_0 &
set -- "$@" "$!"
env -u RANK_TABLE_FILE RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 \
  HCCL_WHITELIST_DISABLE=1 RANK_TABLE_FILE=/workspace/ranklaunch-logs/attempt_1/ranktable.json \
  ASCEND_DEVICE_ID=2 DEVICE_ID=2 RANK_ID=18 RANK_SIZE=32 \
  ASCEND_PROCESS_LOG_PATH=/workspace/ranklaunch-logs/attempt_1/ascend/rank_18 python -u train.py \
  --epochs=3 --data_url=/home/ma-user/modelarts/inputs/data_url_0 &
set -- "$@" "$!"
env -u RANK_TABLE_FILE RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 \
  HCCL_WHITELIST_DISABLE=1 RANK_TABLE_FILE=/workspace/ranklaunch-logs/attempt_1/ranktable.json \
  ASCEND_DEVICE_ID=3 DEVICE_ID=3 RANK_ID=19 RANK_SIZE=32 \
  ASCEND_PROCESS_LOG_PATH=/workspace/ranklaunch-logs/attempt_1/ascend/rank_19 python -u train.py \
  --epochs=3 --data_url=/home/ma-user/modelarts/inputs/data_url_0 &
set -- "$@" "$!"
env -u RANK_TABLE_FILE RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 \
  HCCL_WHITELIST_DISABLE=1 RANK_TABLE_FILE=/workspace/ranklaunch-logs/attempt_1/ranktable.json \
  ASCEND_DEVICE_ID=4 DEVICE_ID=4 RANK_ID=20 RANK_SIZE=32 \
  ASCEND_PROCESS_LOG_PATH=/workspace/ranklaunch-logs/attempt_1/ascend/rank_20 python -u train.py \
  --epochs=3 --data_url=/home/ma-user/modelarts/inputs/data_url_0 &
set -- "$@" "$!"
env -u RANK_TABLE_FILE RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 \
  HCCL_WHITELIST_DISABLE=1 RANK_TABLE_FILE=/workspace/ranklaunch-logs/attempt_1/ranktable.json \
  ASCEND_DEVICE_ID=5 DEVICE_ID=5 RANK_ID=21 RANK_SIZE=32 \
  ASCEND_PROCESS_LOG_PATH=/workspace/ranklaunch-logs/attempt_1/ascend/rank_21 python -u train.py \
  --epochs=3 --data_url=/home/ma-user/modelarts/inputs/data_url_0 &
set -- "$@" "$!"
env -u RANK_TABLE_FILE RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 \
  HCCL_WHITELIST_DISABLE=1 RANK_TABLE_FILE=/workspace/ranklaunch-logs/attempt_1/ranktable.json \
  ASCEND_DEVICE_ID=6 DEVICE_ID=6 RANK_ID=22 RANK_SIZE=32 \
  ASCEND_PROCESS_LOG_PATH=/workspace/ranklaunch-logs/attempt_1/ascend/rank_22 python -u train.py \
  --epochs=3 --data_url=/home/ma-user/modelarts/inputs/data_url_0 &
set -- "$@" "$!"
env -u RANK_TABLE_FILE RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 \
  HCCL_WHITELIST_DISABLE=1 RANK_TABLE_FILE=/workspace/ranklaunch-logs/attempt_1/ranktable.json \
  ASCEND_DEVICE_ID=7 DEVICE_ID=7 RANK_ID=23 RANK_SIZE=32 \
  ASCEND_PROCESS_LOG_PATH=/workspace/ranklaunch-logs/attempt_1/ascend/rank_23 python -u train.py \
  --epochs=3 --data_url=/home/ma-user/modelarts/inputs/data_url_0 &
set -- "$@" "$!"
status=0
for pid in "$@"; do wait "$pid" || status=$?; done
exit "$status"
)
