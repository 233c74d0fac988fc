#!/bin/sh
# bert-ft, node 1 of 3, method deepspeed (RANKLAUNCH_METHOD=deepspeed)
# first: wait for muster 3 nodes at bert-ft-master-0:18889
# the ranks write below /workspace/ranklaunch-logs/node_1/attempt_1/deepspeed
(
set -eu
mkdir -p /workspace/ranklaunch-logs/node_1/attempt_1
printf %s 'bert-ft-master-0 slots=4
unnamed-1 slots=4
unnamed-2 slots=4
' > /workspace/ranklaunch-logs/node_1/attempt_1/hostfile
chmod 0600 /workspace/ranklaunch-logs/node_1/attempt_1/hostfile
exec env -u PET_MASTER_ADDR -u PET_MASTER_PORT -u PET_NNODES -u PET_NODE_RANK -u PET_NPROC_PER_NODE \
  RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 deepspeed --hostfile \
  /workspace/ranklaunch-logs/node_1/attempt_1/hostfile --no_ssh --node_rank 1 --master_addr \
  bert-ft-master-0 --master_port 23456 --enable_each_rank_log \
  /workspace/ranklaunch-logs/node_1/attempt_1/deepspeed train.py --epochs=3
)
