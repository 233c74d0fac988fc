#!/bin/sh
# modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38, node 1 of 2, method pytorch (MA_RUN_METHOD=pytorch)
# first: wait for muster 2 nodes at ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-0.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38:18889
(
set -eu
mkdir -p /home/ma-user/modelarts/log/attempt_1
exec env RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 HCCL_WHITELIST_DISABLE=1 python \
  -u train.py --epochs=3 --data_url=/home/ma-user/modelarts/inputs/data_url_0 --init_method \
  tcp://ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-0.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38:7777 \
  --rank 1 --world_size 2
)
