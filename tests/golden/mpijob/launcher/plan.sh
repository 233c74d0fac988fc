#!/bin/sh
# pi, node 0 of 3, method mpirun (MPIJob=mpirun)
# first: wait for muster 3 nodes at pi-launcher.pi:18889
# first: wait for hosts pi-launcher.pi,pi-worker-0.pi,pi-worker-1.pi
# first: wait for port pi-launcher.pi:36666,pi-worker-0.pi:36666,pi-worker-1.pi:36666
(
set -eu
mkdir -p /workspace/ranklaunch-logs/node_0/attempt_1
mkdir -m 700 /tmp/ranklaunch-pi-1-0-e2862801
printf %s 'pi-worker-0.pi slots=2
pi-worker-1.pi slots=2
' > /workspace/ranklaunch-logs/node_0/attempt_1/hostfile
chmod 0644 /workspace/ranklaunch-logs/node_0/attempt_1/hostfile
printf %s '# For this job'"'"'s own processes: one port, one account, keys only.
Port 36666
HostKey /tmp/ranklaunch-pi-1-0-e2862801/host_key
AuthorizedKeysFile /tmp/ranklaunch-pi-1-0-e2862801/authorized_keys
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
LogLevel INFO' > /tmp/ranklaunch-pi-1-0-e2862801/sshd_config
chmod 0600 /tmp/ranklaunch-pi-1-0-e2862801/sshd_config
printf %s '# node 0'"'"'s key, which it makes for this run
' > /tmp/ranklaunch-pi-1-0-e2862801/authorized_keys
chmod 0600 /tmp/ranklaunch-pi-1-0-e2862801/authorized_keys
printf %s '# How this node reaches the others'"'"' sshd, whatever the account'"'"'s own files say.
Host *
  Port 36666
  User root
  IdentityFile /tmp/ranklaunch-pi-1-0-e2862801/key
  IdentitiesOnly yes
  BatchMode yes
  PreferredAuthentications publickey
  StrictHostKeyChecking yes
  UserKnownHostsFile /tmp/ranklaunch-pi-1-0-e2862801/known_hosts
  GlobalKnownHostsFile /dev/null
  CheckHostIP no
  ConnectTimeout 30
  ServerAliveInterval 15
  ServerAliveCountMax 4
  ForwardAgent no
  ForwardX11 no
  LogLevel ERROR' > /tmp/ranklaunch-pi-1-0-e2862801/ssh_config
chmod 0600 /tmp/ranklaunch-pi-1-0-e2862801/ssh_config
printf %s '' > /tmp/ranklaunch-pi-1-0-e2862801/known_hosts
chmod 0600 /tmp/ranklaunch-pi-1-0-e2862801/known_hosts
env -u OMPI_MCA_orte_default_hostfile RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 install -d -m 0755 \
  /run/sshd
env -u OMPI_MCA_orte_default_hostfile RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 ssh-keygen -q -t \
  ed25519 -N '' -C ranklaunch -f /tmp/ranklaunch-pi-1-0-e2862801/host_key
env -u OMPI_MCA_orte_default_hostfile RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 ssh-keygen -q -t \
  ed25519 -N '' -C ranklaunch -f /tmp/ranklaunch-pi-1-0-e2862801/key
set --
env -u OMPI_MCA_orte_default_hostfile /usr/sbin/sshd -D -e -f \
  /tmp/ranklaunch-pi-1-0-e2862801/sshd_config &
set -- "$@" "$!"
status=0
env -u OMPI_MCA_orte_default_hostfile RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 \
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_orte_tag_output=1 mpirun -np 4 \
  -hostfile /workspace/ranklaunch-logs/node_0/attempt_1/hostfile -mca plm_rsh_args \
  '-p 36666 -F /tmp/ranklaunch-pi-1-0-e2862801/ssh_config' -bind-to none -map-by slot -x \
  KUBERNETES_PORT -x KUBERNETES_SERVICE_HOST -x KUBERNETES_SERVICE_PORT -x NVIDIA_DRIVER_CAPABILITIES \
  -x PATH -x PYTHONUNBUFFERED -x RANKLAUNCH_ATTEMPT -x NCCL_DEBUG=INFO -x NCCL_SOCKET_IFNAME=eth0,bond0 \
  -x NCCL_SOCKET_FAMILY=AF_INET -x HOROVOD_MPI_THREADS_DISABLE=1 -mca pml ob1 -mca btl '^openib' -mca \
  plm_rsh_no_tree_spawn true python -u train.py --epochs 3 || status=$?
kill "$@" 2> /dev/null || true
exit "$status"
)
