#!/bin/sh
# modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38, node 0 of 1, method plain (MA_RUN_METHOD=plain)
(
set -eu
mkdir -p /home/ma-user/modelarts/log/attempt_1
export PYTHONFAULTHANDLER=1
export PYTHONPATH=/opt/ranklaunch/rankside/path
export RANKLAUNCH_RECORDS_DIR=/home/ma-user/modelarts/log/attempt_1/records/node_0
export ASCEND_PROCESS_LOG_PATH=/home/ma-user/modelarts/log/attempt_1/ascend
exec env RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 sh -c 'exec "$0" "$@"' /opt/version=1/trainer --epochs 3
)
