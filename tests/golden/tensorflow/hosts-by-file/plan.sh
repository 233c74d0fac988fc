#!/bin/sh
# modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38, node 2 of 4, method tensorflow (ps are given beside the workers)
# first: wait for muster 4 nodes at ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-0.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38:18889
(
set -eu
mkdir -p /home/ma-user/modelarts/log/attempt_1
exec env RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 \
  'TF_CONFIG={"cluster": {"ps": ["ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-ps-0.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38:2222", "ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-ps-1.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38:2222"], "worker": ["ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-0.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38:2222", "ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-1.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38:2222"]}, "task": {"type": "ps", "index": 0}}' \
  python -u train.py --task_index=0 \
  --ps_hosts=ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-ps-0.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38:2222,ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-ps-1.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38:2222 \
  --worker_hosts=ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-0.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38:2222,ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-1.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38:2222 \
  --job_name=ps
)
