#!/bin/sh
# bert-ft, node 1 of 3, method torchrun (no method asked for, no rank table, 24 ranks)
# first: wait for muster 3 nodes at bert-ft-node-0-0.bert-ft:18889
# the ranks write below /workspace/ranklaunch-logs/node_1/attempt_1/torchrun
(
set -eu
mkdir -p /workspace/ranklaunch-logs/node_1/attempt_1
exec env RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 \
  TORCHELASTIC_ERROR_FILE=/workspace/ranklaunch-logs/node_1/attempt_1/torchrun_error.json \
  PET_LOG_DIR=/workspace/ranklaunch-logs/node_1/attempt_1/torchrun PET_REDIRECTS=3 torchrun --nnodes=3 \
  --nproc_per_node=8 --node_rank=1 --master_addr=bert-ft-node-0-0.bert-ft --master_port=18888 \
  --rdzv_id=bert-ft --rdzv_backend=static train.py --epochs 3
)
