#!/bin/sh
# mnist, node 2 of 3, method tensorflow (ps are given beside the workers)
# first: wait for muster 3 nodes at mnist-worker-0.mnist:18889
(
set -eu
mkdir -p /workspace/ranklaunch-logs/node_2/attempt_1
export PYTHONFAULTHANDLER=1
export PYTHONPATH=/opt/ranklaunch/rankside/path
export RANKLAUNCH_RECORDS_DIR=below:/tmp/ranklaunch-records-f5fe45a7
exec env RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 \
  'TF_CONFIG={"cluster": {"ps": ["mnist-ps-0.mnist:2222"], "worker": ["mnist-worker-0.mnist:2222", "mnist-worker-1.mnist:2222"]}, "task": {"type": "ps", "index": 0}}' \
  python -u train.py --epochs 3 --task_index=0 --ps_hosts=mnist-ps-0.mnist:2222 \
  --worker_hosts=mnist-worker-0.mnist:2222,mnist-worker-1.mnist:2222 --job_name=ps
)
