#!/bin/sh
# modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38, node 1 of 3, method msrun (MA_RUN_METHOD=msrun)
# first: wait for muster 3 nodes at ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-0.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38:18889
# first: wait for hosts ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-0.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38
# the ranks write below /home/ma-user/modelarts/log/attempt_1/msrun
(
set -eu
mkdir -p /home/ma-user/modelarts/log/attempt_1
exec env -u DEVICE_ID -u MS_NODE_ID -u MS_ROLE -u MS_SCHED_HOST -u MS_SCHED_PORT -u MS_WORKER_NUM -u \
  RANK_ID RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 HCCL_WHITELIST_DISABLE=1 \
  msrun --worker_num=24 --local_worker_num=8 \
  --master_addr=ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-0.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38 \
  --node_rank=1 --master_port=8118 --log_dir=/home/ma-user/modelarts/log/attempt_1/msrun --join=True \
  --cluster_time_out=600 train.py --epochs=3 --data_url=/home/ma-user/modelarts/inputs/data_url_0
)
