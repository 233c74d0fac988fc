#!/bin/sh
# modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38, node 2 of 4, method mpirun (MA_RUN_METHOD=mpirun)
# first: wait for muster 4 nodes at ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-worker-0.ma-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38:18889
(
set -eu
mkdir -p /home/ma-user/modelarts/log/attempt_1
mkdir -m 700 /tmp/ranklaunch-modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-1-2-e09938b9
export PYTHONFAULTHANDLER=1
export PYTHONPATH=/opt/ranklaunch/rankside/path
export RANKLAUNCH_RECORDS_DIR=below:/tmp/ranklaunch-records-ef80e90c
printf %s '# For this job'"'"'s own processes: one port, one account, keys only.
Port 36666
HostKey /tmp/ranklaunch-modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-1-2-e09938b9/host_key
AuthorizedKeysFile /tmp/ranklaunch-modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-1-2-e09938b9/authorized_keys
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
LogLevel INFO' > /tmp/ranklaunch-modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-1-2-e09938b9/sshd_config
chmod 0600 /tmp/ranklaunch-modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-1-2-e09938b9/sshd_config
printf %s '# node 0'"'"'s key, which it makes for this run
' > /tmp/ranklaunch-modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-1-2-e09938b9/authorized_keys
chmod 0600 /tmp/ranklaunch-modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-1-2-e09938b9/authorized_keys
env RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 install -d -m 0755 /run/sshd
env RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 ssh-keygen -q -t ed25519 -N '' -C ranklaunch -f \
  /tmp/ranklaunch-modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-1-2-e09938b9/host_key
exec env /usr/sbin/sshd -D -e -f \
  /tmp/ranklaunch-modelarts-job-5d2e7c1a-90b3-4c57-8e0f-2a6d1b7f4c38-1-2-e09938b9/sshd_config
)
