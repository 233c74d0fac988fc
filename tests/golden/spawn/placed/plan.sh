#!/bin/sh
# local, node 1 of 2, method spawn (RANKLAUNCH_METHOD=spawn)
# first: wait for muster 2 nodes at h0:18889
(
set -eu
mkdir -p /workspace/ranklaunch-logs/node_1/attempt_1
export PYTHONFAULTHANDLER=1
export PYTHONPATH=/opt/ranklaunch/rankside/path
export RANKLAUNCH_RECORDS_DIR=/workspace/ranklaunch-logs/node_1/attempt_1/records/node_1
set --
env RANKLAUNCH_ATTEMPT=1 RANKLAUNCH_PLACE_PROGRAM=python:train.py RANKLAUNCH_PLACE_CORES=0-1:2-3 \
  RANKLAUNCH_PLACE_MEMORY=0:1 RANKLAUNCH_PLACE_DEBUGPY=127.0.0.1:5678 RANKLAUNCH_PLACE_WAIT=true \
  OMP_NUM_THREADS=2 PYTHONUNBUFFERED=1 RANK=2 LOCAL_RANK=0 WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 GROUP_RANK=1 \
  MASTER_ADDR=h0 MASTER_PORT=29500 python -u /opt/ranklaunch/programs/place_rank.py --lr 0.1 &
set -- "$@" "$!"
env RANKLAUNCH_ATTEMPT=1 RANKLAUNCH_PLACE_PROGRAM=python:train.py RANKLAUNCH_PLACE_CORES=0-1:2-3 \
  RANKLAUNCH_PLACE_MEMORY=0:1 RANKLAUNCH_PLACE_DEBUGPY=127.0.0.1:5678 RANKLAUNCH_PLACE_WAIT=true \
  OMP_NUM_THREADS=2 PYTHONUNBUFFERED=1 RANK=3 LOCAL_RANK=1 WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 GROUP_RANK=1 \
  MASTER_ADDR=h0 MASTER_PORT=29500 python -u /opt/ranklaunch/programs/place_rank.py --lr 0.1 &
set -- "$@" "$!"
status=0
for pid in "$@"; do wait "$pid" || status=$?; done
exit "$status"
)
