#!/bin/sh
# digits-2026-11-21, node 1 of 2, method torchrun (no method asked for, no rank table, 16 ranks)
# first: wait for muster 2 nodes at algo-1:18889
# the ranks write below /workspace/ranklaunch-logs/attempt_1/torchrun
(
set -eu
mkdir -p /workspace/ranklaunch-logs/attempt_1
exec env 'SM_CHANNELS=[]' SM_CURRENT_HOST=algo-2 SM_CURRENT_INSTANCE_GROUP=homogeneousCluster \
  SM_CURRENT_INSTANCE_TYPE=local 'SM_HPS={}' SM_INPUT_CONFIG_DIR=/opt/ml/input/config \
  'SM_INPUT_DATA_CONFIG={}' SM_INPUT_DIR=/opt/ml/input SM_MODULE_DIR=/opt/ml/code SM_MODULE_NAME=train \
  SM_NETWORK_INTERFACE_NAME=eth0 SM_OUTPUT_DATA_DIR=/opt/ml/output/data SM_OUTPUT_DIR=/opt/ml/output \
  SM_OUTPUT_INTERMEDIATE_DIR=/opt/ml/output/intermediate 'SM_RESOURCE_CONFIG={}' 'SM_USER_ARGS=[]' \
  SM_USER_ENTRY_POINT=train.py RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 \
  TORCHELASTIC_ERROR_FILE=/workspace/ranklaunch-logs/attempt_1/torchrun_error.json \
  PET_LOG_DIR=/workspace/ranklaunch-logs/attempt_1/torchrun PET_REDIRECTS=3 torchrun --nnodes=2 \
  --nproc_per_node=8 --node_rank=1 --master_addr=algo-1 --master_port=18888 --rdzv_id=digits-2026-11-21 \
  --rdzv_backend=static /opt/ml/code/train.py
)
