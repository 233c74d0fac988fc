"""Checks and variables for launchers on node 0 that start the ranks of all nodes: mpirun, and DeepSpeed's launchers except no_ssh."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from ranklaunch.adapters.launchers.shared.variables import misleading
from ranklaunch.env.job import Job
from ranklaunch.env.reader import Reader
from ranklaunch.showing import clipped

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
# Variables of a session, a host or a container: the values of node 0 are wrong on other nodes. Launchers forward their own variables
# themselves.
_OF_NODE_0 = (
    r"HOSTNAME|HOST|PWD|OLDPWD|SHLVL|_|TERM|USER|LOGNAME|SHELL|MAIL|SSH_.*"
    r"|(OMPI|PMIX|PRTE|ORTE|OPAL|PDSH|HYDRA)_.*|DS_ENV_FILE|RANKLAUNCH_(SECRET|JOB_UID|NODE|OUTER_RUN)"
    r"|JOB_COMPLETION_INDEX|K_MPI_JOB_ROLE|REPLICA_TYPE|NPU_POD|POD_IP|POD_NAME|NODE_NAME"
    r"|DSTACK_JOB_ID|DSTACK_GPUS_PER_NODE|BATCH_TASK_INDEX|LEPTON_JOB_WORKER_.*|RUNPOD_.*|AZ_BATCH_(NODE|TASK)_.*"
    r"|(JSM|PALS)_.*|FLUX_(JOB_TMPDIR|TASK_.*)"
    r"|HCCL_IF_IP|HCCL_LOGIC_SUPERPOD_ID|NVIDIA_VISIBLE_DEVICES|ASCEND_VISIBLE_DEVICES"
    r"|SLURM_(?!(JOB_ID|JOBID|JOB_NAME|ARRAY_JOB_ID|ARRAY_TASK_ID|RESTART_COUNT|SUBMIT_DIR)\Z).*"
)
# Variables of visible devices. Device numbers may hold for every node; UUIDs (GPU-..., MIG-...) are those of one machine.
_CHOSEN = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
_UNIQUE = r"\b(GPU|MIG)-"
# Variables by which Open MPI's components recognise a batch system, and the names of these components.
_OF_OPEN_MPI = {"SLURM_": "slurm", "LSB_JOBID": "lsf", "PBS_JOBID": "tm"}


def open_mpi_settings(reader: Reader, *, tags: bool = False) -> dict[str, str]:
    """Return variables for Open MPI that the user has not set: permission to run as root, and hosts and slots from the hostfile only.

    Open MPI's components for batch systems are turned off. Under Slurm, Open MPI would take srun's tasks for slots, one on each node, and
    would start its daemons by a second srun, which waits for the end of the first. Under LSF and PBS, Open MPI would take the slots of the
    batch system, and PBS's node file, which exists on the first host only. tags: True to prefix each piece of output with its rank.
    """
    components = [name for sign, name in _OF_OPEN_MPI.items() if any(each.startswith(sign) for each in reader.env)]
    excluding = ("OMPI_MCA_ras", "OMPI_MCA_plm", "PRTE_MCA_ras", "PRTE_MCA_plm") if components else ()
    settings = {
        **dict.fromkeys(("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"), "1"),
        **({"OMPI_MCA_orte_tag_output": "1"} if tags else {}),
        "OMPI_MCA_orte_keep_fqdn_hostnames": "1",
        **dict.fromkeys(excluding, f"^{','.join(components)}"),
    }
    return {name: value for name, value in settings.items() if name not in reader.env}


def refuse_addresses(job: Job, reader: Reader, described: str) -> None:
    """Refuse IPv6 addresses: Open MPI 4 does not accept them as hosts, and after an error message waits forever."""
    address = next((node.host for node in job.nodes if ":" in node.host), "")
    if address and job.has_peers:
        reader.problem(
            f"{described}: Open MPI 4 accepts no IPv6 address as a host, such as {address}: set host names instead (RANKLAUNCH_HOSTS)"
        )


def refuse_twice(job: Job, reader: Reader, described: str) -> None:
    """Refuse one host for several nodes: Open MPI would make one node of them, or fail with an unrelated message."""
    times = Counter(node.host.lower().rstrip(".") for node in job.nodes)
    twice = sorted(host for host, count in times.items() if host and count > 1)
    if twice:
        reader.problem(
            f"{described}: {clipped(', '.join(twice))} is the host of several nodes, but a hostfile lists each host once: "
            "name one host per node"
        )


def refuse_colon(words: Sequence[str], reader: Reader, described: str, starter: str) -> None:
    """Refuse an argument ":" of the program: Open MPI, MPICH and Slurm's srun take it as the separator between programs."""
    if ":" in words:
        reader.problem(
            f"{described}: the program has the argument ':', at which {starter} begins another program: "
            "start the program, with this argument, from a script of yours"
        )


def forwarded(reader: Reader, values: Mapping[str, str]) -> list[str]:
    """Return the names of node 0's variables that are forwarded to the ranks of all nodes."""
    excluded = {*misleading(reader.env), *reader.per_node}
    names = (name for name in values if name not in excluded and re.fullmatch(_NAME, name) and not re.fullmatch(_OF_NODE_0, name))
    return sorted(name for name in names if not (name in _CHOSEN and re.search(_UNIQUE, values[name])))
