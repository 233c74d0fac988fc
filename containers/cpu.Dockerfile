# ranklaunch in an image that trains on CPUs. README.md in this folder says how to build it:
#
#     docker build -f containers/cpu.Dockerfile -t train:cpu containers
#
# Choose as BASE the image with your program's packages. The default has only Python, for x86_64 and aarch64.
ARG BASE=python:3.11-slim
FROM ${BASE}

# The Python that ranklaunch's own environment is made of: 3.9 or newer, of this image, with venv.
ARG PYTHON=python3

# Some images end as another user.
USER root

# sshd and ssh: for method mpirun, and for deepspeed where its runner is asked for. Nothing starts sshd but ranklaunch, for a job, with keys
# and settings of that job's own. So no host key stays: whoever had the image would have it. numactl: for binding ranks to memory; optional.
RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends openssh-client openssh-server numactl \
 && rm -rf /var/lib/apt/lists/* /etc/ssh/ssh_host_*

# The user that ModelArts expects: ma-user, uid 1000, gid 100. Ubuntu 24.04 has another user of that number. The password `*` fits nothing;
# a locked account (`!`) would be refused by sshd even with the right key.
RUN if taken=$(getent passwd 1000); then userdel "${taken%%:*}"; fi \
 && useradd --create-home --home-dir /home/ma-user --shell /bin/bash --uid 1000 --gid 100 --password '*' ma-user

COPY install.sh wheels /tmp/ranklaunch/
RUN sh /tmp/ranklaunch/install.sh --python "$PYTHON" /tmp/ranklaunch \
 && rm -rf /tmp/ranklaunch

# A number: Kubernetes cannot see that a name is not root's. Without a group, so that all groups of the user count.
USER 1000
WORKDIR /home/ma-user

# ranklaunch is PID 1: it passes signals on, reaps what is left to it, and when it ends the kernel ends the rest. An init such as tini
# in front of it would only hide its signals and exit code.
ENTRYPOINT ["ranklaunch", "run"]
