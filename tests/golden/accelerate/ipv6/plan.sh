#!/bin/sh
# local, node 1 of 2, method accelerate (option --method accelerate)
# first: wait for muster 2 nodes at [2001:db8::1]:18889
# the ranks write below /workspace/ranklaunch-logs/attempt_1/accelerate
(
set -eu
mkdir -p /workspace/ranklaunch-logs/attempt_1
printf %s '{
 "compute_environment": "LOCAL_MACHINE",
 "distributed_type": "MULTI_GPU",
 "num_machines": 2,
 "num_processes": 2,
 "machine_rank": 1,
 "main_process_ip": "[2001:db8::1]",
 "main_process_port": 29500,
 "use_cpu": true
}
' > /workspace/ranklaunch-logs/attempt_1/accelerate.json
chmod 0600 /workspace/ranklaunch-logs/attempt_1/accelerate.json
exec env RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 \
  TORCHELASTIC_ERROR_FILE=/workspace/ranklaunch-logs/attempt_1/accelerate_error.json PET_REDIRECTS=3 \
  ACCELERATE_USE_CPU=true accelerate launch --num_machines 2 --num_processes 2 --machine_rank 1 \
  --main_process_ip '[2001:db8::1]' --main_process_port 29500 --config_file \
  /workspace/ranklaunch-logs/attempt_1/accelerate.json --log_dir \
  /workspace/ranklaunch-logs/attempt_1/accelerate train.py
)
