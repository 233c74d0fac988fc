#!/bin/sh
# resnet, node 1 of 3, method torchrun (no method asked for, no rank table, 12 ranks)
# first: wait for muster 3 nodes at resnet-master-0.resnet:18889
# the ranks write below /workspace/ranklaunch-logs/node_1/attempt_1/torchrun
(
set -eu
mkdir -p /workspace/ranklaunch-logs/node_1/attempt_1
exec env -u MASTER_ADDR -u MASTER_PORT -u RANK -u WORLD_SIZE RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 \
  TORCHELASTIC_ERROR_FILE=/workspace/ranklaunch-logs/node_1/attempt_1/torchrun_error.json \
  PET_LOG_DIR=/workspace/ranklaunch-logs/node_1/attempt_1/torchrun PET_REDIRECTS=3 torchrun --nnodes=3 \
  --nproc_per_node=4 --node_rank=1 --master_addr=resnet-master-0.resnet --master_port=23456 \
  --rdzv_id=resnet --rdzv_backend=static train.py --epochs 3
)
