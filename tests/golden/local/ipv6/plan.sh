#!/bin/sh
# local, node 1 of 2, method pytorch (RANKLAUNCH_METHOD=pytorch)
# first: wait for muster 2 nodes at [2001:db8::1]:18889
(
set -eu
mkdir -p /workspace/ranklaunch-logs/attempt_1
exec env RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 python -u train.py --init_method \
  'tcp://[2001:db8::1]:6666' --rank 1 --world_size 2
)
