#!/bin/sh
# local, node 0 of 1, method torchrun (no method asked for, no rank table, 2 ranks)
# the ranks write below /workspace/ranklaunch-logs/attempt_1/torchrun
(
set -eu
mkdir -p /workspace/ranklaunch-logs/attempt_1
exec env RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 \
  TORCHELASTIC_ERROR_FILE=/workspace/ranklaunch-logs/attempt_1/torchrun_error.json \
  PET_LOG_DIR=/workspace/ranklaunch-logs/attempt_1/torchrun PET_REDIRECTS=3 torchrun --standalone \
  --nnodes=1 --nproc_per_node=2 train.py
)
