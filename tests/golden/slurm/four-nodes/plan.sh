#!/bin/sh
# my job-81726.0, node 2 of 4, method torchrun (no method asked for, no rank table, 16 ranks)
# first: wait for muster 4 nodes at gpu-a1b3:18889
# the ranks write below /workspace/ranklaunch-logs/job_81726.0/node_2/attempt_1/torchrun
(
set -eu
mkdir -p /workspace/ranklaunch-logs/job_81726.0/node_2/attempt_1
exec env RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 \
  TORCHELASTIC_ERROR_FILE=/workspace/ranklaunch-logs/job_81726.0/node_2/attempt_1/torchrun_error.json \
  PET_LOG_DIR=/workspace/ranklaunch-logs/job_81726.0/node_2/attempt_1/torchrun PET_REDIRECTS=3 torchrun \
  --nnodes=4 --nproc_per_node=4 --node_rank=2 --master_addr=gpu-a1b3 --master_port=18888 \
  '--rdzv_id=my job-81726.0' --rdzv_backend=static train.py --epochs=3
)
