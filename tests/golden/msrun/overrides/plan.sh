#!/bin/sh
# modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38, node 1 of 3, method msrun (MA_RUN_METHOD=msrun)
# first: wait for muster 3 nodes at ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-0.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38:18889
# first: wait for hosts 198.51.100.7
# the ranks write below /home/ma-user/modelarts/log/msrun
(
set -eu
mkdir -p /home/ma-user/modelarts/log/attempt_1
exec env RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 HCCL_WHITELIST_DISABLE=1 msrun \
  --worker_num=24 --local_worker_num=8 --master_addr=198.51.100.7 --node_rank=1 --master_port=8119 \
  --log_dir=/home/ma-user/modelarts/log/msrun --join=True --cluster_time_out=1800 --bind_core=True \
  --tail_worker_log=0 train.py --epochs=3 --data_url=/home/ma-user/modelarts/inputs/data_url_0
)
