# ranklaunch in an image that trains on NVIDIA GPUs. README.md in this folder says how to build it:
#
#     docker build -f containers/gpu.Dockerfile -t train:gpu containers
#
# Choose as BASE the image with your program's packages, such as one of pytorch/pytorch (x86_64). The default has only CUDA and cuDNN, for
# x86_64 and aarch64. The driver is the host's; NVIDIA's container runtime brings it in.
ARG BASE=nvidia/cuda:12.8.0-cudnn-runtime-ubuntu22.04
FROM ${BASE}

# Python of this image for ranklaunch's own environment: 3.9 or newer, with venv.
ARG PYTHON=python3

# Some images end with another USER.
USER root

# sshd and ssh: for method mpirun, and for deepspeed if its runner is requested. Only ranklaunch starts sshd, with keys and settings of one
# job. Host keys are removed: everyone with the image would have them. numactl, which is optional, binds ranks to memory.
# python3-venv: Ubuntu's Python, in case BASE has no Python, or one without venv. Your program's own Python, if there is one, stays first on
# PATH.
RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends openssh-client openssh-server numactl python3-venv \
 && rm -rf /var/lib/apt/lists/* /etc/ssh/ssh_host_*

# The user that ModelArts expects: ma-user, uid 1000, gid 100. Ubuntu 24.04 has another user with that uid. No password matches `*`;
# sshd refuses a locked account (`!`) even with the right key.
RUN if taken=$(getent passwd 1000); then userdel "${taken%%:*}"; fi \
 && useradd --create-home --home-dir /home/ma-user --shell /bin/bash --uid 1000 --gid 100 --password '*' ma-user

COPY install.sh wheels /tmp/ranklaunch/
RUN sh /tmp/ranklaunch/install.sh --python "$PYTHON" /tmp/ranklaunch \
 && rm -rf /tmp/ranklaunch

# A number, since Kubernetes cannot tell that a name is not root's. No group here, so that all groups of the user count.
USER 1000
WORKDIR /home/ma-user

# ranklaunch is PID 1: it passes signals on and reaps orphans, and when it exits, the kernel kills the rest. An init such as tini
# would only hide its signals and exit code.
ENTRYPOINT ["ranklaunch", "run"]
