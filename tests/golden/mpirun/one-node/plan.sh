#!/bin/sh
# modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38, node 0 of 1, method mpirun (MA_RUN_METHOD=mpirun)
(
set -eu
mkdir -p /home/ma-user/modelarts/log/attempt_1
printf %s 'localhost slots=8
' > /home/ma-user/modelarts/log/attempt_1/hostfile
chmod 0644 /home/ma-user/modelarts/log/attempt_1/hostfile
exec env RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 HCCL_WHITELIST_DISABLE=1 \
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_orte_tag_output=1 \
  OMPI_MCA_orte_keep_fqdn_hostnames=1 mpirun -np 8 -hostfile \
  /home/ma-user/modelarts/log/attempt_1/hostfile -bind-to none -map-by slot -x HCCL_CONNECT_TIMEOUT -x \
  HCCL_WHITELIST_DISABLE -x HOME -x MA_HOME -x MA_JOB_DIR -x MA_LOG_DIR -x MA_MOUNT_PATH -x MA_NUM_GPUS \
  -x MA_NUM_HOSTS -x MA_PROC_START_CNT -x MA_RUN_METHOD -x MA_SCHEDULE_CNT -x MA_SCRIPT_INTERPRETER -x \
  MA_TASK_NAME -x MA_VJ_NAME -x PATH -x PYTHONUNBUFFERED -x RANKLAUNCH_ATTEMPT -x S3_ACCESS_KEY_ID -x \
  S3_ENDPOINT -x S3_SECRET_ACCESS_KEY -x VC_WORKER_HOSTS -x VC_WORKER_NUM -x NCCL_DEBUG=INFO -x \
  NCCL_SOCKET_IFNAME=eth0,bond0 -x NCCL_SOCKET_FAMILY=AF_INET -x HOROVOD_MPI_THREADS_DISABLE=1 -mca pml \
  ob1 -mca btl '^openib' python -u train.py --epochs=3 \
  --data_url=/home/ma-user/modelarts/inputs/data_url_0
)
