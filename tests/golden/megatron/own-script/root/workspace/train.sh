#!/bin/bash
GPUS_PER_NODE=8
CHECKPOINT_PATH=$1
DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes ${NNODES:-1}
    --node_rank ${NODE_RANK:-0}
    --master_addr $MASTER_ADDR
    --master_port $MASTER_PORT
)
MODEL_PARALLEL_ARGS=(
    --tensor-model-parallel-size ${TP:-4}
    --pipeline-model-parallel-size 2
)
torchrun "${DISTRIBUTED_ARGS[@]}" pretrain_gpt.py --num-layers 32 "${MODEL_PARALLEL_ARGS[@]}" --save "$CHECKPOINT_PATH"
