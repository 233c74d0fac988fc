#!/bin/sh
# modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38, node 0 of 1, method deepspeed (MA_RUN_METHOD=deepspeed)
# the ranks write below /home/ma-user/modelarts/log/attempt_1/deepspeed
(
set -eu
mkdir -p /home/ma-user/modelarts/log/attempt_1
exec env RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 deepspeed --hostfile /dev/null --num_gpus 8 --master_port \
  29500 --enable_each_rank_log /home/ma-user/modelarts/log/attempt_1/deepspeed --bind_cores_to_rank \
  --bind_core_list 0-7 train.py --epochs=3 --data_url=/home/ma-user/modelarts/inputs/data_url_0
)
