#!/bin/sh
# bert-ft, node 1 of 3, method torchrun (no method asked for, no rank table, 24 ranks)
# first: wait for muster 3 nodes at bert-ft-master-0:18889
# the ranks write below /workspace/ranklaunch-logs/node_1/attempt_1/torchrun
(
set -eu
mkdir -p /workspace/ranklaunch-logs/node_1/attempt_1
exec env -u MASTER_ADDR -u MASTER_PORT -u PET_MASTER_ADDR -u PET_MASTER_PORT -u PET_NNODES -u \
  PET_NODE_RANK -u PET_NPROC_PER_NODE -u RANK -u WORLD_SIZE RANKLAUNCH_ATTEMPT=1 \
  TORCHELASTIC_ERROR_FILE=/workspace/ranklaunch-logs/node_1/attempt_1/torchrun_error.json \
  PET_LOG_DIR=/workspace/ranklaunch-logs/node_1/attempt_1/torchrun PET_REDIRECTS=3 torchrun --nnodes=3 \
  --nproc_per_node=8 --node_rank=1 --master_addr=bert-ft-master-0 --master_port=23456 --rdzv_id=bert-ft \
  --rdzv_backend=static train.py --epochs 3
)
