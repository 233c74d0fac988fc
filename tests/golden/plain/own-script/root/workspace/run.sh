#!/bin/bash
# torchrun of every node
DISTRIBUTED=(
  --nnodes "${NNODES:-1}" --node_rank "${NODE_RANK:-0}" --nproc_per_node "${NPROC_PER_NODE:-8}"
  --master_addr "$MASTER_ADDR" --master_port "$MASTER_PORT"
)
exec torchrun "${DISTRIBUTED[@]}" train.py "$@"
