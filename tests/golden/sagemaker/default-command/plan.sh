#!/bin/sh
# digits-2026-11-21, node 1 of 2, method torchrun (no method asked for, no rank table, 4 ranks)
# first: wait for muster 2 nodes at algo-1:18889
# the ranks write below /workspace/ranklaunch-logs/node_1/attempt_1/torchrun/node_1
(
set -eu
mkdir -p /workspace/ranklaunch-logs/node_1/attempt_1
mkdir -m 700 /tmp/ranklaunch-recorders-8b09a4946ef84178
export PYTHONFAULTHANDLER=1
export PYTHONPATH=/opt/ranklaunch/rankside/path
export RANKLAUNCH_RECORDS_DIR=/workspace/ranklaunch-logs/node_1/attempt_1/records/node_1
export TORCH_NCCL_TRACE_BUFFER_SIZE=2000
export TORCH_NCCL_DEBUG_INFO_TEMP_FILE=/tmp/ranklaunch-recorders-8b09a4946ef84178/nccl_trace_rank_
export TORCH_NCCL_DEBUG_INFO_PIPE_FILE=/tmp/ranklaunch-recorders-8b09a4946ef84178/nccl_pipe_rank_
export TORCH_NCCL_DUMP_ON_TIMEOUT=1
exec env -C /opt/ml/code 'SM_CHANNELS=["train"]' SM_CHANNEL_TRAIN=/opt/ml/input/data/train \
  SM_CURRENT_HOST=algo-2 SM_CURRENT_INSTANCE_GROUP=homogeneousCluster \
  SM_CURRENT_INSTANCE_TYPE=ml.p4d.24xlarge 'SM_HOSTS=["algo-1","algo-2"]' \
  'SM_HPS={"batch-size":128,"fp16":true,"layers":[64,32],"lr":0.1,"optimizer":"adam","x":1}' \
  SM_HP_BATCH-SIZE=128 SM_HP_FP16=true 'SM_HP_LAYERS=[64,32]' SM_HP_LR=0.1 SM_HP_OPTIMIZER=adam \
  SM_HP_X=1 SM_INPUT_CONFIG_DIR=/opt/ml/input/config \
  'SM_INPUT_DATA_CONFIG={"train":{"ContentType":"text/csv","RecordWrapperType":"None","S3DistributionType":"FullyReplicated","TrainingInputMode":"File"}}' \
  SM_INPUT_DIR=/opt/ml/input SM_LOG_LEVEL=20 SM_MODEL_DIR=/opt/ml/model SM_MODULE_DIR=/opt/ml/code \
  SM_MODULE_NAME=train SM_NETWORK_INTERFACE_NAME=eth0 SM_NUM_GPUS=2 \
  SM_OUTPUT_DATA_DIR=/opt/ml/output/data SM_OUTPUT_DIR=/opt/ml/output \
  SM_OUTPUT_INTERMEDIATE_DIR=/opt/ml/output/intermediate \
  'SM_RESOURCE_CONFIG={"current_group_name":"homogeneousCluster","current_host":"algo-2","current_instance_type":"ml.p4d.24xlarge","hosts":["algo-2","algo-1"],"instance_groups":[{"hosts":["algo-2","algo-1"],"instance_group_name":"homogeneousCluster","instance_type":"ml.p4d.24xlarge"}],"network_interface_name":"eth0"}' \
  'SM_USER_ARGS=["--batch-size","128","--fp16","True","--layers","[64, 32]","--lr","0.1","--optimizer","adam","-x","1"]' \
  SM_USER_ENTRY_POINT=train.py RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 \
  TORCHELASTIC_ERROR_FILE=/workspace/ranklaunch-logs/node_1/attempt_1/torchrun_error.json \
  PET_LOG_DIR=/workspace/ranklaunch-logs/node_1/attempt_1/torchrun/node_1 PET_REDIRECTS=3 torchrun \
  --nnodes=2 --nproc_per_node=2 --node_rank=1 --master_addr=algo-1 --master_port=18888 \
  --rdzv_id=digits-2026-11-21 --rdzv_backend=static /opt/ml/code/train.py --batch-size 128 --fp16 True \
  --layers '[64, 32]' --lr 0.1 --optimizer adam -x 1
)
