#!/bin/sh
# local, node 0 of 2, method tensorflow (option --method tensorflow)
# first: wait for muster 2 nodes at n0:18889
(
set -eu
mkdir -p /workspace/ranklaunch-logs/attempt_1
exec env RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 \
  'TF_CONFIG={"cluster": {"worker": ["n0:2222", "n1:2222"]}, "task": {"type": "worker", "index": 0}}' \
  python -u train.py --task_index=0 --worker_hosts=n0:2222,n1:2222 --job_name=worker
)
