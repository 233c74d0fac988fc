#!/bin/sh
# t-20261121140641-nznsh, node 1 of 2, method torchrun (no method asked for, no rank table, 16 ranks)
# first: wait for muster 2 nodes at 192.0.2.11:18889
# the ranks write below /workspace/ranklaunch-logs/attempt_1/torchrun
(
set -eu
mkdir -p /workspace/ranklaunch-logs/attempt_1
exec env RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 \
  TORCHELASTIC_ERROR_FILE=/workspace/ranklaunch-logs/attempt_1/torchrun_error.json \
  PET_LOG_DIR=/workspace/ranklaunch-logs/attempt_1/torchrun PET_REDIRECTS=3 torchrun --nnodes=2 \
  --nproc_per_node=8 --node_rank=1 --master_addr=192.0.2.11 --master_port=18888 \
  --rdzv_id=t-20261121140641-nznsh --rdzv_backend=static train.py --epochs=3
)
