#!/bin/sh
# pangu, node 1 of 2, method msrun (option --method msrun)
# first: wait for muster 2 nodes at 10.96.201.78:18889
# first: wait for hosts 10.96.201.78
# the ranks write below /workspace/ranklaunch-logs/node_1/attempt_1/msrun
(
set -eu
mkdir -p /workspace/ranklaunch-logs/node_1/attempt_1
exec env -u MS_LOCAL_WORKER -u MS_NODE_RANK -u MS_ROLE -u MS_SCHED_HOST -u MS_SCHED_PORT -u MS_SERVER_NUM \
  -u MS_WORKER_NUM RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 \
  HCCL_WHITELIST_DISABLE=1 msrun --worker_num=16 --local_worker_num=8 --master_addr=10.96.201.78 \
  --node_rank=1 --master_port=2222 --log_dir=/workspace/ranklaunch-logs/node_1/attempt_1/msrun \
  --join=True --cluster_time_out=600 train.py
)
