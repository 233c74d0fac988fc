#!/bin/sh
# local, node 2 of 3, method tensorflow (ps are given beside the workers)
# first: wait for muster 3 nodes at [fd00::1]:18889
(
set -eu
mkdir -p /workspace/ranklaunch-logs/attempt_1
exec env RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 \
  'TF_CONFIG={"cluster": {"ps": ["[fd00::3]:7000"], "worker": ["[fd00::1]:7001", "[fd00::2]:7001"]}, "task": {"type": "ps", "index": 0}}' \
  python -u train.py --task_index=0 '--ps_hosts=[fd00::3]:7000' \
  '--worker_hosts=[fd00::1]:7001,[fd00::2]:7001' --job_name=ps
)
