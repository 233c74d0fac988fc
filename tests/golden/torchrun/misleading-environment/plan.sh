#!/bin/sh
# modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38, node 1 of 2, method torchrun (MA_RUN_METHOD=torchrun)
# first: wait for muster 2 nodes at ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-0.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38:18889
# the ranks write below /home/ma-user/modelarts/log/attempt_1/torchrun/node_1
(
set -eu
mkdir -p /home/ma-user/modelarts/log/attempt_1
export PYTHONFAULTHANDLER=1
export PYTHONPATH=/opt/ranklaunch/rankside/path
export RANKLAUNCH_RECORDS_DIR=/home/ma-user/modelarts/log/attempt_1/records/node_1
export ASCEND_PROCESS_LOG_PATH=/home/ma-user/modelarts/log/attempt_1/ascend
exec env -u ASCEND_DEVICE_ID -u DEVICE_ID -u GROUP_RANK -u LOCAL_RANK -u LOCAL_WORLD_SIZE -u MASTER_ADDR \
  -u MASTER_PORT -u MS_LOCAL_WORKER -u MS_NODE_RANK -u MS_ROLE -u MS_SCHED_HOST -u MS_SCHED_PORT -u \
  MS_WORKER_NUM -u OMPI_COMM_WORLD_RANK -u PET_NNODES -u PET_RDZV_BACKEND -u RANK -u RANK_ID -u \
  RANK_SIZE -u TORCHELASTIC_RUN_ID -u WORLD_SIZE RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 \
  HCCL_CONNECT_TIMEOUT=1800 HCCL_WHITELIST_DISABLE=1 \
  TORCHELASTIC_ERROR_FILE=/home/ma-user/modelarts/log/attempt_1/torchrun_error.json \
  PET_LOG_DIR=/home/ma-user/modelarts/log/attempt_1/torchrun/node_1 PET_REDIRECTS=3 torchrun --nnodes=2 \
  --nproc_per_node=1 --node_rank=1 \
  --master_addr=ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-0.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38 \
  --master_port=18888 --rdzv_id=modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38 \
  --rdzv_backend=static train.py --epochs=3 --data_url=/home/ma-user/modelarts/inputs/data_url_0
)
