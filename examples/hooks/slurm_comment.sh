#!/bin/sh
# slurm_comment.sh EVENT FILE: sets an event of a job as the comment of its Slurm job; squeue -o %k and sacct -o Comment show it.
#
# RANKLAUNCH_ON_EVENT="sh examples/hooks/slurm_comment.sh"
reason=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["reason"][:200])' "$2") || exit
job=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}  # the number alone would mean all tasks of an array
exec scontrol update "JobId=${job:-$SLURM_JOB_ID}" "Comment=$1: $reason"
