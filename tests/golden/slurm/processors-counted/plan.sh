#!/bin/sh
# my job-81726, node 0 of 1, method torchrun (option --method torchrun)
# the ranks write below /workspace/ranklaunch-logs/job_81726/attempt_1/torchrun
(
set -eu
mkdir -p /workspace/ranklaunch-logs/job_81726/attempt_1
exec env RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 \
  TORCHELASTIC_ERROR_FILE=/workspace/ranklaunch-logs/job_81726/attempt_1/torchrun_error.json \
  PET_LOG_DIR=/workspace/ranklaunch-logs/job_81726/attempt_1/torchrun PET_REDIRECTS=3 torchrun \
  --standalone --nnodes=1 --nproc_per_node=1 train.py
)
