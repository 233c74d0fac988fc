#!/bin/sh
# modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38, node 0 of 1, method accelerate (MA_RUN_METHOD=accelerate)
# the ranks write below /home/ma-user/modelarts/log/attempt_1/accelerate
(
set -eu
mkdir -p /home/ma-user/modelarts/log/attempt_1
printf %s '{
 "compute_environment": "LOCAL_MACHINE",
 "distributed_type": "MULTI_GPU",
 "num_machines": 1,
 "num_processes": 8,
 "machine_rank": 0,
 "main_process_ip": "ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-0.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38",
 "main_process_port": 29500,
 "use_cpu": false
}
' > /home/ma-user/modelarts/log/attempt_1/accelerate.json
chmod 0600 /home/ma-user/modelarts/log/attempt_1/accelerate.json
exec env RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 \
  TORCHELASTIC_ERROR_FILE=/home/ma-user/modelarts/log/attempt_1/accelerate_error.json PET_REDIRECTS=3 \
  accelerate launch --num_machines 1 --num_processes 8 --machine_rank 0 --main_process_ip \
  ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-0.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38 \
  --main_process_port 29500 --config_file /home/ma-user/modelarts/log/attempt_1/accelerate.json \
  --log_dir /home/ma-user/modelarts/log/attempt_1/accelerate train.py --epochs=3 \
  --data_url=/home/ma-user/modelarts/inputs/data_url_0
)
