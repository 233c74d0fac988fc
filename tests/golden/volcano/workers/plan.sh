#!/bin/sh
# llm-ft, node 1 of 3, method torchrun (no method asked for, no rank table, 24 ranks)
# first: wait for muster 3 nodes at llm-ft-worker-0.llm-ft:18889
# the ranks write below /workspace/ranklaunch-logs/node_1/attempt_3/torchrun
(
set -eu
mkdir -p /workspace/ranklaunch-logs/node_1/attempt_3
exec env RANKLAUNCH_ATTEMPT=3 PYTHONUNBUFFERED=1 \
  TORCHELASTIC_ERROR_FILE=/workspace/ranklaunch-logs/node_1/attempt_3/torchrun_error.json \
  PET_LOG_DIR=/workspace/ranklaunch-logs/node_1/attempt_3/torchrun PET_REDIRECTS=3 torchrun --nnodes=3 \
  --nproc_per_node=8 --node_rank=1 --master_addr=llm-ft-worker-0.llm-ft --master_port=18888 \
  --rdzv_id=llm-ft --rdzv_backend=static train.py --epochs 3
)
