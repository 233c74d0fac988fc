#!/bin/sh
# dlc18isgeayd9x2k, node 1 of 2, method torchrun (no method asked for, no rank table, 16 ranks)
# first: wait for muster 2 nodes at dlc18isgeayd9x2k-master-0:18889
# the ranks write below /workspace/ranklaunch-logs/attempt_1/torchrun
(
set -eu
mkdir -p /workspace/ranklaunch-logs/attempt_1
exec env -u MASTER_ADDR -u MASTER_PORT -u RANK -u WORLD_SIZE RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 \
  TORCHELASTIC_ERROR_FILE=/workspace/ranklaunch-logs/attempt_1/torchrun_error.json \
  PET_LOG_DIR=/workspace/ranklaunch-logs/attempt_1/torchrun PET_REDIRECTS=3 torchrun --nnodes=2 \
  --nproc_per_node=8 --node_rank=1 --master_addr=dlc18isgeayd9x2k-master-0 --master_port=18888 \
  --rdzv_id=dlc18isgeayd9x2k --rdzv_backend=static train.py --epochs=3
)
