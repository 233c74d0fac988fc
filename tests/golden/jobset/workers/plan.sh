#!/bin/sh
# gpt, node 2 of 4, method torchrun (no method asked for, no rank table, 32 ranks)
# first: wait for muster 4 nodes at gpt-workers-0-0.gpt:18889
# the ranks write below /workspace/ranklaunch-logs/node_2/attempt_2/torchrun
(
set -eu
mkdir -p /workspace/ranklaunch-logs/node_2/attempt_2
exec env RANKLAUNCH_ATTEMPT=2 PYTHONUNBUFFERED=1 \
  TORCHELASTIC_ERROR_FILE=/workspace/ranklaunch-logs/node_2/attempt_2/torchrun_error.json \
  PET_LOG_DIR=/workspace/ranklaunch-logs/node_2/attempt_2/torchrun PET_REDIRECTS=3 torchrun --nnodes=4 \
  --nproc_per_node=8 --node_rank=2 --master_addr=gpt-workers-0-0.gpt --master_port=18888 --rdzv_id=gpt \
  --rdzv_backend=static train.py --epochs 3
)
