#!/bin/sh
# local, node 0 of 1, method plain (no method asked for, one rank)
(
set -eu
mkdir -p /logs/attempt_11
exec env RANKLAUNCH_ATTEMPT=11 PYTHONUNBUFFERED=1 python -u train.py
)
