#!/bin/sh
# modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38, node 1 of 4, method tensorflow (ps are given beside the workers)
# first: wait for muster 4 nodes at ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-0.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38:18889
(
set -eu
mkdir -p /home/ma-user/modelarts/log/attempt_1
exec env RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 HCCL_WHITELIST_DISABLE=1 \
  'TF_CONFIG={"cluster": {"ps": ["ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-ps-0.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38:6234", "ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-ps-1.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38:6234"], "worker": ["ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-0.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38:6234", "ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-1.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38:6234"]}, "task": {"type": "worker", "index": 1}}' \
  python -u train.py --epochs=3 --data_url=/home/ma-user/modelarts/inputs/data_url_0 --task_index=1 \
  --ps_hosts=ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-ps-0.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38:6234,ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-ps-1.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38:6234 \
  --worker_hosts=ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-0.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38:6234,ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-1.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38:6234 \
  --job_name=worker
)
