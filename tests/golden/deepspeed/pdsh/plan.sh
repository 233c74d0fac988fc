#!/bin/sh
# modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38, node 0 of 3, method deepspeed (MA_RUN_METHOD=deepspeed)
# first: wait for hosts ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-0.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38,ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-1.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38,ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-2.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38
# first: wait for muster 3 nodes at ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-0.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38:18889
# first: wait for port ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-0.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38:36666,ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-1.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38:36666,ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-2.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38:36666
(
set -eu
mkdir -p /home/ma-user/modelarts/log/attempt_1
mkdir -m 700 /opt/run/ranklaunch-modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-1-0-e09938b9
mkdir -p /opt/run/ranklaunch-modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-1-0-e09938b9/runner
export PYTHONFAULTHANDLER=1
export PYTHONPATH=/opt/ranklaunch/rankside/path
export RANKLAUNCH_RECORDS_DIR=below:/opt/run/ranklaunch-records-ef80e90c
export ASCEND_PROCESS_LOG_PATH=/home/ma-user/modelarts/log/attempt_1/ascend
printf %s '# For this job'"'"'s own processes: one port, one account, keys only.
Port 36666
HostKey /opt/run/ranklaunch-modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-1-0-e09938b9/host_key
AuthorizedKeysFile /opt/run/ranklaunch-modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-1-0-e09938b9/authorized_keys
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
LogLevel INFO' > /opt/run/ranklaunch-modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-1-0-e09938b9/sshd_config
chmod 0600 /opt/run/ranklaunch-modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-1-0-e09938b9/sshd_config
printf %s '# node 0'"'"'s key, which it makes for this run
' > /opt/run/ranklaunch-modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-1-0-e09938b9/authorized_keys
chmod 0600 /opt/run/ranklaunch-modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-1-0-e09938b9/authorized_keys
printf %s '# How this node reaches the others'"'"' sshd, whatever the account'"'"'s own files say.
Host *
  Port 36666
  User root
  IdentityFile /opt/run/ranklaunch-modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-1-0-e09938b9/key
  IdentitiesOnly yes
  BatchMode yes
  PreferredAuthentications publickey
  StrictHostKeyChecking yes
  UserKnownHostsFile /opt/run/ranklaunch-modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-1-0-e09938b9/known_hosts
  GlobalKnownHostsFile /dev/null
  CheckHostIP no
  ConnectTimeout 30
  ServerAliveInterval 15
  ServerAliveCountMax 4
  ForwardAgent no
  ForwardX11 no
  LogLevel ERROR' > /opt/run/ranklaunch-modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-1-0-e09938b9/ssh_config
chmod 0600 /opt/run/ranklaunch-modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-1-0-e09938b9/ssh_config
printf %s '' > /opt/run/ranklaunch-modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-1-0-e09938b9/known_hosts
chmod 0600 /opt/run/ranklaunch-modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-1-0-e09938b9/known_hosts
printf %s 'ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-0.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38 slots=2
ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-1.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38 slots=2
ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-2.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38 slots=2
' > /home/ma-user/modelarts/log/attempt_1/hostfile
chmod 0600 /home/ma-user/modelarts/log/attempt_1/hostfile
printf %s 'HCCL_CONNECT_TIMEOUT=1800
HCCL_WHITELIST_DISABLE=1
MA_HOME=/home/ma-user
MA_JOB_DIR=/home/ma-user/modelarts/user-job-dir
MA_LOG_DIR=/home/ma-user/modelarts/log
MA_MOUNT_PATH=/home/ma-user/modelarts
MA_NUM_GPUS=2
MA_NUM_HOSTS=3
MA_PROC_START_CNT=1
MA_RUN_METHOD=deepspeed
MA_SCHEDULE_CNT=1
MA_SCRIPT_INTERPRETER=
MA_TASK_NAME=worker
MA_VJ_NAME=ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38
PATH=/home/ma-user/anaconda/bin:/usr/local/bin:/usr/bin:/bin
PYTHONPATH=/opt/ranklaunch/rankside/path
PYTHONUNBUFFERED=1
RANKLAUNCH_ATTEMPT=1
RANKLAUNCH_DEEPSPEED_LAUNCHER=pdsh
RANKLAUNCH_RECORDS_DIR=below:/opt/run/ranklaunch-records-ef80e90c
RANKLAUNCH_RESTART_COUNT=0
RANKLAUNCH_RUN_DIR=/opt/run
RANKLAUNCH_RUN_ID=
S3_ENDPOINT=https://obs.example.com
VC_WORKER_HOSTS=ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-0.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38,ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-1.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38,ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-2.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38
VC_WORKER_NUM=3
' > /home/ma-user/modelarts/log/attempt_1/deepspeed_env
chmod 0600 /home/ma-user/modelarts/log/attempt_1/deepspeed_env
printf %s '#!/bin/sh
exec /usr/bin/ssh -F /opt/run/ranklaunch-modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-1-0-e09938b9/ssh_config "$@"
' > /opt/run/ranklaunch-modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-1-0-e09938b9/ssh
chmod 0700 /opt/run/ranklaunch-modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-1-0-e09938b9/ssh
printf %s '#!/bin/sh
PATH=/opt/run/ranklaunch-modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-1-0-e09938b9:/home/ma-user/anaconda/bin:/usr/local/bin:/usr/bin:/bin
echo begun > /opt/run/ranklaunch-modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-1-0-e09938b9/runner/end
pdsh "$@"
code=$?
echo $code > /opt/run/ranklaunch-modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-1-0-e09938b9/runner/end
exit $code
' > /opt/run/ranklaunch-modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-1-0-e09938b9/runner/pdsh
chmod 0700 /opt/run/ranklaunch-modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-1-0-e09938b9/runner/pdsh
env RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 install -d -m 0755 /run/sshd
env RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 ssh-keygen -q -t ed25519 -N '' -C ranklaunch -f \
  /opt/run/ranklaunch-modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-1-0-e09938b9/host_key
env RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 ssh-keygen -q -t ed25519 -N '' -C ranklaunch -f \
  /opt/run/ranklaunch-modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-1-0-e09938b9/key
set --
env /usr/sbin/sshd -D -e -f \
  /opt/run/ranklaunch-modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-1-0-e09938b9/sshd_config &
set -- "$@" "$!"
status=0
env RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 HCCL_CONNECT_TIMEOUT=1800 HCCL_WHITELIST_DISABLE=1 \
  PATH=/opt/run/ranklaunch-modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-1-0-e09938b9/runner:/opt/run/ranklaunch-modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-1-0-e09938b9:/home/ma-user/anaconda/bin:/usr/local/bin:/usr/bin:/bin \
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_orte_keep_fqdn_hostnames=1 \
  DS_ENV_FILE=/home/ma-user/modelarts/log/attempt_1/deepspeed_env deepspeed --hostfile \
  /home/ma-user/modelarts/log/attempt_1/hostfile --launcher pdsh --no_ssh_check --master_addr \
  ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-0.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38 \
  --master_port 29500 train.py --epochs=3 --data_url=/home/ma-user/modelarts/inputs/data_url_0 || status=$?
kill "$@" 2> /dev/null || true
exit "$status"
)
