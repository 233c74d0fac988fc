#!/bin/sh
# modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38, node 0 of 1, method spawn (MA_RUN_METHOD=spawn)
(
set -eu
mkdir -p /home/ma-user/modelarts/log/attempt_1
export PYTHONFAULTHANDLER=1
export PYTHONPATH=/opt/ranklaunch/rankside/path
export RANKLAUNCH_RECORDS_DIR=/home/ma-user/modelarts/log/attempt_1/records/node_0
export ASCEND_PROCESS_LOG_PATH=/home/ma-user/modelarts/log/attempt_1/ascend
env RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 \
  PATH=/opt/venv/bin:/home/ma-user/anaconda/bin:/usr/local/bin:/usr/bin:/bin bash \
  /home/ma-user/modelarts/user-job-dir/code/ma_pre_start.sh
env RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 \
  PATH=/opt/venv/bin:/home/ma-user/anaconda/bin:/usr/local/bin:/usr/bin:/bin /opt/venv/bin/python -m \
  pip install -r /home/ma-user/modelarts/user-job-dir/code/pip-requirements.txt
set --
env RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 \
  PATH=/opt/venv/bin:/home/ma-user/anaconda/bin:/usr/local/bin:/usr/bin:/bin HCCL_CONNECT_TIMEOUT=1800 \
  HCCL_WHITELIST_DISABLE=1 RANK=0 LOCAL_RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 GROUP_RANK=0 \
  MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 /opt/venv/bin/python -u \
  /home/ma-user/modelarts/user-job-dir/code/train.py &
set -- "$@" "$!"
env RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 \
  PATH=/opt/venv/bin:/home/ma-user/anaconda/bin:/usr/local/bin:/usr/bin:/bin HCCL_CONNECT_TIMEOUT=1800 \
  HCCL_WHITELIST_DISABLE=1 RANK=1 LOCAL_RANK=1 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 GROUP_RANK=0 \
  MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 /opt/venv/bin/python -u \
  /home/ma-user/modelarts/user-job-dir/code/train.py &
set -- "$@" "$!"
status=0
for pid in "$@"; do wait "$pid" || status=$?; done
exit "$status"
)
