#!/bin/sh
# modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38, node 1 of 3, method deepspeed (MA_RUN_METHOD=deepspeed)
# first: wait for muster 3 nodes at ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-0.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38:18889
# the ranks write below /home/ma-user/modelarts/log/attempt_1/deepspeed
(
set -eu
mkdir -p /home/ma-user/modelarts/log/attempt_1
printf %s 'ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-0.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38 slots=2
ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-1.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38 slots=2
ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-2.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38 slots=2
' > /home/ma-user/modelarts/log/attempt_1/hostfile
chmod 0600 /home/ma-user/modelarts/log/attempt_1/hostfile
exec env RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 HCCL_WHITELIST_DISABLE=1 \
  deepspeed --hostfile /home/ma-user/modelarts/log/attempt_1/hostfile --no_ssh --node_rank 1 \
  --master_addr \
  ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-0.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38 \
  --master_port 29500 --enable_each_rank_log /home/ma-user/modelarts/log/attempt_1/deepspeed train.py \
  --epochs=3 --data_url=/home/ma-user/modelarts/inputs/data_url_0
)
