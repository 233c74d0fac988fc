#!/bin/sh
# modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38, node 1 of 2, method megatron (MA_RUN_METHOD=megatron)
# first: wait for muster 2 nodes at ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-0.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38:18889
# the ranks write below /home/ma-user/modelarts/log/attempt_1/torchrun
(
set -eu
mkdir -p /home/ma-user/modelarts/log/attempt_1
exec env RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 \
  TORCHELASTIC_ERROR_FILE=/home/ma-user/modelarts/log/attempt_1/torchrun_error.json \
  PET_LOG_DIR=/home/ma-user/modelarts/log/attempt_1/torchrun PET_REDIRECTS=3 \
  CUDA_DEVICE_MAX_CONNECTIONS=1 torchrun --nnodes=2 --nproc_per_node=8 --node_rank=1 \
  --master_addr=ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-0.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38 \
  --master_port=18888 --rdzv_id=modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38 \
  --rdzv_backend=static pretrain_gpt.py --num-layers=32 --train-iters 100 --tensor-model-parallel-size \
  2 --pipeline-model-parallel-size 4
)
