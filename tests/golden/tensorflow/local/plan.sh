#!/bin/sh
# local, node 1 of 3, method tensorflow (ps are given beside the workers)
# first: wait for muster 3 nodes at n0:18889
(
set -eu
mkdir -p /workspace/ranklaunch-logs/attempt_1
exec env RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 \
  'TF_CONFIG={"cluster": {"ps": ["n2:7000"], "worker": ["n0:7000", "n1:7000"]}, "task": {"type": "worker", "index": 1}}' \
  python -u train.py --task_index=1 --ps_hosts=n2:7000 --worker_hosts=n0:7000,n1:7000 --job_name=worker
)
