#!/bin/sh
# bert-ft, node 1 of 2, method torchrun (no method asked for, no rank table, 192 ranks)
# first: wait for muster 2 nodes at bert-ft-node-0-0.bert-ft:18889
# the ranks write below /workspace/ranklaunch-logs/node_1/attempt_1/torchrun
(
set -eu
mkdir -p /workspace/ranklaunch-logs/node_1/attempt_1
exec env -u PET_MASTER_ADDR -u PET_MASTER_PORT -u PET_NNODES -u PET_NODE_RANK -u PET_NPROC_PER_NODE \
  RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 HCCL_WHITELIST_DISABLE=1 \
  TORCHELASTIC_ERROR_FILE=/workspace/ranklaunch-logs/node_1/attempt_1/torchrun_error.json \
  PET_LOG_DIR=/workspace/ranklaunch-logs/node_1/attempt_1/torchrun PET_REDIRECTS=3 torchrun --nnodes=2 \
  --nproc_per_node=96 --node_rank=1 --master_addr=bert-ft-node-0-0.bert-ft --master_port=29500 \
  --rdzv_id=bert-ft --rdzv_backend=static train.py --epochs 3
)
