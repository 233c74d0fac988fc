#!/bin/sh
# modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38, node 0 of 4, method mpirun (MA_RUN_METHOD=mpirun)
# first: wait for muster 4 nodes at ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-0.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38:18889
# first: wait for hosts ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-0.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38,ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-1.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38,ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-2.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38,ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-3.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38
# first: wait for port ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-0.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38:36666,ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-1.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38:36666,ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-2.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38:36666,ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-3.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38:36666
(
set -eu
mkdir -p /home/ma-user/modelarts/log/attempt_1
mkdir -m 700 /tmp/ranklaunch-modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-1-0-e09938b9
export PYTHONFAULTHANDLER=1
export PYTHONPATH=/opt/ranklaunch/rankside/path
export RANKLAUNCH_RECORDS_DIR=below:/tmp/ranklaunch-records-ef80e90c
export ASCEND_PROCESS_LOG_PATH=/home/ma-user/modelarts/log/attempt_1/ascend
printf %s 'ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-0.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38 slots=8
ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-1.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38 slots=8
ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-2.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38 slots=8
ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-3.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38 slots=8
' > /home/ma-user/modelarts/log/attempt_1/hostfile
chmod 0644 /home/ma-user/modelarts/log/attempt_1/hostfile
printf %s '# For this job'"'"'s own processes: one port, one account, keys only.
Port 36666
HostKey /tmp/ranklaunch-modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-1-0-e09938b9/host_key
AuthorizedKeysFile /tmp/ranklaunch-modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-1-0-e09938b9/authorized_keys
PidFile none
# The folder of the keys is this account'"'"'s alone; one of its parents is not.
StrictModes no
AllowUsers root
PermitRootLogin prohibit-password
AuthenticationMethods publickey
PubkeyAuthentication yes
PasswordAuthentication no
ChallengeResponseAuthentication no
HostbasedAuthentication no
PermitEmptyPasswords no
UsePAM no
PermitUserEnvironment no
PermitUserRC no
PermitTTY no
AllowAgentForwarding no
AllowTcpForwarding no
AllowStreamLocalForwarding no
X11Forwarding no
PermitTunnel no
GatewayPorts no
UseDNS no
PrintMotd no
PrintLastLog no
MaxStartups 200
LoginGraceTime 60
ClientAliveInterval 15
ClientAliveCountMax 4
LogLevel INFO' > /tmp/ranklaunch-modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-1-0-e09938b9/sshd_config
chmod 0600 /tmp/ranklaunch-modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-1-0-e09938b9/sshd_config
cp /root/.ssh/authorized_keys /tmp/ranklaunch-modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-1-0-e09938b9/authorized_keys
chmod 0600 /tmp/ranklaunch-modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-1-0-e09938b9/authorized_keys
printf %s '# How this node reaches the others'"'"' sshd, whatever the account'"'"'s own files say.
Host *
  Port 36666
  User root
  IdentityFile /tmp/ranklaunch-modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-1-0-e09938b9/key
  IdentitiesOnly yes
  BatchMode yes
  PreferredAuthentications publickey
  StrictHostKeyChecking yes
  UserKnownHostsFile /tmp/ranklaunch-modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-1-0-e09938b9/known_hosts
  GlobalKnownHostsFile /dev/null
  CheckHostIP no
  ConnectTimeout 30
  ServerAliveInterval 15
  ServerAliveCountMax 4
  ForwardAgent no
  ForwardX11 no
  LogLevel ERROR' > /tmp/ranklaunch-modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-1-0-e09938b9/ssh_config
chmod 0600 /tmp/ranklaunch-modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-1-0-e09938b9/ssh_config
printf %s '' > /tmp/ranklaunch-modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-1-0-e09938b9/known_hosts
chmod 0600 /tmp/ranklaunch-modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-1-0-e09938b9/known_hosts
cp /root/.ssh/id_rsa /tmp/ranklaunch-modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-1-0-e09938b9/key
chmod 0600 /tmp/ranklaunch-modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-1-0-e09938b9/key
env RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 install -d -m 0755 /run/sshd
env RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 ssh-keygen -q -t ed25519 -N '' -C ranklaunch -f \
  /tmp/ranklaunch-modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-1-0-e09938b9/host_key
set --
env /usr/sbin/sshd -D -e -f \
  /tmp/ranklaunch-modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-1-0-e09938b9/sshd_config &
set -- "$@" "$!"
status=0
env RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 HCCL_WHITELIST_DISABLE=1 \
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_orte_tag_output=1 \
  OMPI_MCA_orte_keep_fqdn_hostnames=1 \
  MASTER_ADDR=ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-0.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38 \
  MASTER_PORT=29500 /usr/local/mpi/bin/mpirun -np 32 --hostfile \
  /home/ma-user/modelarts/log/attempt_1/hostfile --prtemca plm_ssh_args \
  '-p 36666 -F /tmp/ranklaunch-modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-1-0-e09938b9/ssh_config' \
  --bind-to none --map-by slot --output tag -x HCCL_CONNECT_TIMEOUT -x HCCL_WHITELIST_DISABLE -x HOME \
  -x MASTER_ADDR -x MASTER_PORT -x MA_HOME -x MA_JOB_DIR -x MA_LOG_DIR -x MA_MOUNT_PATH -x MA_NUM_GPUS \
  -x MA_NUM_HOSTS -x MA_PROC_START_CNT -x MA_RUN_METHOD -x MA_SCHEDULE_CNT -x MA_SCRIPT_INTERPRETER -x \
  MA_TASK_NAME -x MA_VJ_NAME -x PATH -x PYTHONFAULTHANDLER -x PYTHONPATH -x PYTHONUNBUFFERED -x \
  RANKLAUNCH_ATTEMPT -x RANKLAUNCH_RECORDS_DIR -x RANKLAUNCH_RESTART_COUNT -x RANKLAUNCH_RUN_ID -x \
  S3_ACCESS_KEY_ID -x S3_ENDPOINT -x S3_SECRET_ACCESS_KEY -x VC_WORKER_HOSTS -x VC_WORKER_NUM -x \
  NCCL_DEBUG=INFO -x NCCL_SOCKET_IFNAME=eth0 -x NCCL_SOCKET_FAMILY=AF_INET -x \
  HOROVOD_MPI_THREADS_DISABLE=1 --mca pml ob1 --mca btl '^openib' --prtemca plm_ssh_no_tree_spawn 1 \
  python -u train.py --epochs=3 --data_url=/home/ma-user/modelarts/inputs/data_url_0 || status=$?
kill "$@" 2> /dev/null || true
exit "$status"
)
