#!/bin/sh
# llama, node 1 of 2, method torchrun (no method asked for, no rank table, 16 ranks)
# first: wait for muster 2 nodes at 10.96.201.77:18889
# the ranks write below /workspace/ranklaunch-logs/node_1/attempt_1/torchrun
(
set -eu
mkdir -p /workspace/ranklaunch-logs/node_1/attempt_1
exec env -u LOCAL_RANK -u LOCAL_WORLD_SIZE -u MASTER_ADDR -u MASTER_PORT -u RANK -u WORLD_SIZE \
  RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 HCCL_WHITELIST_DISABLE=1 \
  TORCHELASTIC_ERROR_FILE=/workspace/ranklaunch-logs/node_1/attempt_1/torchrun_error.json \
  PET_LOG_DIR=/workspace/ranklaunch-logs/node_1/attempt_1/torchrun PET_REDIRECTS=3 torchrun --nnodes=2 \
  --nproc_per_node=8 --node_rank=1 --master_addr=10.96.201.77 --master_port=2222 --rdzv_id=llama \
  --rdzv_backend=static train.py --epochs 3
)
