#!/bin/sh
# modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38, node 10 of 11, method ranktable (a rank table is given (/user/config/jobstart_hccl.json))
# first: wait for muster 11 nodes at ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-0.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38:18889
(
set -eu
mkdir -p /workspace/ranklaunch-logs/attempt_1
printf %s '{"status": "completed", "version": "1.0", "server_count": "11", "server_list": [{"server_id": "192.0.2.11", "device": [{"device_id": "0", "device_ip": "198.51.103.1", "rank_id": "0"}]}, {"server_id": "192.0.2.12", "device": [{"device_id": "0", "device_ip": "198.51.104.1", "rank_id": "1"}]}, {"server_id": "192.0.2.13", "device": [{"device_id": "0", "device_ip": "198.51.102.1", "rank_id": "2"}]}, {"server_id": "192.0.2.14", "device": [{"device_id": "0", "device_ip": "198.51.107.1", "rank_id": "3"}]}, {"server_id": "192.0.2.15", "device": [{"device_id": "0", "device_ip": "198.51.108.1", "rank_id": "4"}]}, {"server_id": "192.0.2.16", "device": [{"device_id": "0", "device_ip": "198.51.110.1", "rank_id": "5"}]}, {"server_id": "192.0.2.17", "device": [{"device_id": "0", "device_ip": "198.51.109.1", "rank_id": "6"}]}, {"server_id": "192.0.2.18", "device": [{"device_id": "0", "device_ip": "198.51.106.1", "rank_id": "7"}]}, {"server_id": "192.0.2.19", "device": [{"device_id": "0", "device_ip": "198.51.105.1", "rank_id": "8"}]}, {"server_id": "192.0.2.20", "device": [{"device_id": "0", "device_ip": "198.51.101.1", "rank_id": "9"}]}, {"server_id": "192.0.2.21", "device": [{"device_id": "0", "device_ip": "198.51.100.1", "rank_id": "10"}]}]}
' > /workspace/ranklaunch-logs/attempt_1/ranktable.json
chmod 0600 /workspace/ranklaunch-logs/attempt_1/ranktable.json
exec env -u RANK_TABLE_FILE RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 \
  HCCL_WHITELIST_DISABLE=1 RANK_TABLE_FILE=/workspace/ranklaunch-logs/attempt_1/ranktable.json \
  ASCEND_DEVICE_ID=0 DEVICE_ID=0 RANK_ID=10 RANK_SIZE=11 \
  ASCEND_PROCESS_LOG_PATH=/workspace/ranklaunch-logs/attempt_1/ascend/rank_10 python -u train.py \
  --epochs=3 --data_url=/home/ma-user/modelarts/inputs/data_url_0
)
