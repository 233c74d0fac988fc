#!/bin/sh
# local, node 0 of 1, method plain (no method asked for, one rank)
(
set -eu
mkdir -p /workspace/ranklaunch-logs/attempt_1
exec env RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 python -u train.py
)
