#!/bin/sh
# modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38, node 0 of 2, method ranktable (a rank table is given (/user/config/jobstart_hccl.json))
# first: wait for muster 2 nodes at ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-0.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38:18889
(
set -eu
mkdir -p /workspace/ranklaunch-logs/node_0/attempt_1
export PYTHONFAULTHANDLER=1
export PYTHONPATH=/opt/ranklaunch/rankside/path
export RANKLAUNCH_RECORDS_DIR=/workspace/ranklaunch-logs/node_0/attempt_1/records/node_0
printf %s '{"status": "completed", "version": "1.0", "server_count": "2", "server_list": [{"server_id": "192.0.2.11", "device": [{"device_id": "0", "device_ip": "198.51.100.1", "rank_id": "0"}, {"device_id": "1", "device_ip": "198.51.100.2", "rank_id": "1"}]}, {"server_id": "192.0.2.12", "device": [{"device_id": "0", "device_ip": "198.51.100.17", "rank_id": "2"}, {"device_id": "1", "device_ip": "198.51.100.18", "rank_id": "3"}]}]}
' > /workspace/ranklaunch-logs/node_0/attempt_1/ranktable.json
chmod 0600 /workspace/ranklaunch-logs/node_0/attempt_1/ranktable.json
set --
env -u RANK_TABLE_FILE RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 \
  HCCL_WHITELIST_DISABLE=1 RANK_TABLE_FILE=/workspace/ranklaunch-logs/node_0/attempt_1/ranktable.json \
  ASCEND_DEVICE_ID=0 DEVICE_ID=0 RANK_ID=0 RANK_SIZE=4 \
  ASCEND_PROCESS_LOG_PATH=/workspace/ranklaunch-logs/node_0/attempt_1/ascend/rank_0 python -u train.py \
  --epochs=3 --data_url=/home/ma-user/modelarts/inputs/data_url_0 &
set -- "$@" "$!"
env -u RANK_TABLE_FILE RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 \
  HCCL_WHITELIST_DISABLE=1 RANK_TABLE_FILE=/workspace/ranklaunch-logs/node_0/attempt_1/ranktable.json \
  ASCEND_DEVICE_ID=1 DEVICE_ID=1 RANK_ID=1 RANK_SIZE=4 \
  ASCEND_PROCESS_LOG_PATH=/workspace/ranklaunch-logs/node_0/attempt_1/ascend/rank_1 python -u train.py \
  --epochs=3 --data_url=/home/ma-user/modelarts/inputs/data_url_0 &
set -- "$@" "$!"
status=0
for pid in "$@"; do wait "$pid" || status=$?; done
exit "$status"
)
