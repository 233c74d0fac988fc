#!/bin/sh
# digits-2026-11-21, node 0 of 1, method spawn (option --method spawn)
(
set -eu
mkdir -p /workspace/ranklaunch-logs/attempt_1
exec env 'SM_CHANNELS=["train"]' SM_CHANNEL_TRAIN=/opt/ml/input/data/train SM_CURRENT_HOST=algo-1 \
  SM_CURRENT_INSTANCE_GROUP=homogeneousCluster SM_CURRENT_INSTANCE_TYPE=ml.p4d.24xlarge \
  'SM_HOSTS=["algo-1"]' \
  'SM_HPS={"batch-size":128,"fp16":true,"layers":[64,32],"lr":0.1,"optimizer":"adam","x":1}' \
  SM_HP_BATCH-SIZE=128 SM_HP_FP16=true 'SM_HP_LAYERS=[64,32]' SM_HP_LR=0.1 SM_HP_OPTIMIZER=adam \
  SM_HP_X=1 SM_INPUT_CONFIG_DIR=/opt/ml/input/config \
  'SM_INPUT_DATA_CONFIG={"train":{"ContentType":"text/csv","RecordWrapperType":"None","S3DistributionType":"FullyReplicated","TrainingInputMode":"File"}}' \
  SM_INPUT_DIR=/opt/ml/input SM_MODEL_DIR=/opt/ml/model SM_MODULE_DIR=/opt/ml/code SM_MODULE_NAME=train \
  SM_NETWORK_INTERFACE_NAME=eth0 SM_NUM_GPUS=1 SM_OUTPUT_DATA_DIR=/opt/ml/output/data \
  SM_OUTPUT_DIR=/opt/ml/output SM_OUTPUT_INTERMEDIATE_DIR=/opt/ml/output/intermediate \
  'SM_RESOURCE_CONFIG={"current_group_name":"homogeneousCluster","current_host":"algo-1","current_instance_type":"ml.p4d.24xlarge","hosts":["algo-1"],"instance_groups":[{"hosts":["algo-1"],"instance_group_name":"homogeneousCluster","instance_type":"ml.p4d.24xlarge"}],"network_interface_name":"eth0"}' \
  'SM_USER_ARGS=["--epochs=3"]' SM_USER_ENTRY_POINT=train.py RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 \
  RANK=0 LOCAL_RANK=0 WORLD_SIZE=1 LOCAL_WORLD_SIZE=1 GROUP_RANK=0 MASTER_ADDR=algo-1 MASTER_PORT=29500 \
  python -u train.py --epochs=3
)
