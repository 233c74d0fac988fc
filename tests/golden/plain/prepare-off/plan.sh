#!/bin/sh
# modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38, node 0 of 1, method plain (MA_RUN_METHOD=plain)
(
set -eu
mkdir -p /home/ma-user/modelarts/log/attempt_1
exec env RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 python -u \
  /home/ma-user/modelarts/user-job-dir/code/train.py
)
