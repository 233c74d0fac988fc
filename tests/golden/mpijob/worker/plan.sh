#!/bin/sh
# pi, node 2 of 3, method mpirun (MPIJob=mpirun)
# first: wait for muster 3 nodes at pi-launcher.pi:18889
(
set -eu
mkdir -p /workspace/ranklaunch-logs/node_2/attempt_1
mkdir -m 700 /tmp/ranklaunch-pi-1-2-c58a243b
printf %s '# For this job'"'"'s own processes: one port, one account, keys only.
Port 36666
HostKey /tmp/ranklaunch-pi-1-2-c58a243b/host_key
AuthorizedKeysFile /tmp/ranklaunch-pi-1-2-c58a243b/authorized_keys
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
LogLevel INFO' > /tmp/ranklaunch-pi-1-2-c58a243b/sshd_config
chmod 0600 /tmp/ranklaunch-pi-1-2-c58a243b/sshd_config
printf %s '# node 0'"'"'s key, which it makes for this run
' > /tmp/ranklaunch-pi-1-2-c58a243b/authorized_keys
chmod 0600 /tmp/ranklaunch-pi-1-2-c58a243b/authorized_keys
env RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 install -d -m 0755 /run/sshd
env RANKLAUNCH_ATTEMPT=1 PYTHONUNBUFFERED=1 ssh-keygen -q -t ed25519 -N '' -C ranklaunch -f \
  /tmp/ranklaunch-pi-1-2-c58a243b/host_key
exec env /usr/sbin/sshd -D -e -f /tmp/ranklaunch-pi-1-2-c58a243b/sshd_config
)
