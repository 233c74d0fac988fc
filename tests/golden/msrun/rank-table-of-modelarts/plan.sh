#!/bin/sh
# modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38, node 1 of 3, method msrun (MA_RUN_METHOD=msrun)
# first: wait for muster 3 nodes at ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-0.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38:18889
# first: wait for hosts ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-0.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38
# the ranks write below /home/ma-user/modelarts/log/attempt_1/msrun
(
set -eu
mkdir -p /home/ma-user/modelarts/log/attempt_1
printf %s '{"status": "completed", "version": "1.0", "server_count": "3", "server_list": [{"server_id": "192.0.2.11", "device": [{"device_id": "0", "device_ip": "29.90.1.1", "rank_id": "0"}, {"device_id": "1", "device_ip": "29.90.1.2", "rank_id": "1"}]}, {"server_id": "192.0.2.12", "device": [{"device_id": "0", "device_ip": "29.90.2.1", "rank_id": "2"}, {"device_id": "1", "device_ip": "29.90.2.2", "rank_id": "3"}]}, {"server_id": "192.0.2.13", "device": [{"device_id": "0", "device_ip": "29.90.3.1", "rank_id": "4"}, {"device_id": "1", "device_ip": "29.90.3.2", "rank_id": "5"}]}]}
' > /home/ma-user/modelarts/log/attempt_1/ranktable.json
chmod 0600 /home/ma-user/modelarts/log/attempt_1/ranktable.json
exec env -u RANK_TABLE_FILE RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 \
  HCCL_WHITELIST_DISABLE=1 msrun --worker_num=6 --local_worker_num=2 \
  --master_addr=ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-0.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38 \
  --node_rank=1 --master_port=8118 --log_dir=/home/ma-user/modelarts/log/attempt_1/msrun --join=True \
  --cluster_time_out=600 --rank_table_file=/home/ma-user/modelarts/log/attempt_1/ranktable.json \
  train.py --epochs=3 --data_url=/home/ma-user/modelarts/inputs/data_url_0
)
