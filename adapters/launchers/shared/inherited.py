"""Inherited variables that would mislead a launcher or its ranks: images, operators and earlier launchers leave them behind.

They are removed from the environment of what is started and named in the plan. Settings for recovery (MS_ENABLE_TFT,
TORCH_NCCL_*, HIGH_AVAILABILITY, TTP_PORT, ...) do not match and stay.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

MISLEADING: tuple[tuple[str, str], ...] = (
    (
        r"RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE",
        "set per node, not per rank, by Volcano's pytorch plugin and Ascend Operator",
    ),
    (r"GROUP_RANK|GROUP_WORLD_SIZE|ROLE_RANK|ROLE_NAME|ROLE_WORLD_SIZE", "left by an outer torchrun"),
    (r"MASTER_ADDR|MASTER_PORT", "set by operators for another rendezvous"),
    (r"PET_[A-Z0-9_]+", "every option of torchrun may come from here, unseen"),
    (r"TORCHELASTIC_[A-Z0-9_]+", "left by an outer torchrun"),
    (r"RANK_ID|RANK_SIZE|DEVICE_ID|ASCEND_DEVICE_ID", "ids of one process, not of the node"),
    (r"RANK_TABLE_FILE|RANK_TABLE_FILE_V_1_0", "a folder on ModelArts, which HCCL cannot read"),
    (
        r"MS_(ROLE|SCHED_HOST|SCHED_PORT|NODE_ID|NODE_RANK|WORKER_NUM|LOCAL_WORKER|SERVER_NUM|WORKER_IP|HCCL_CM_INIT)",
        "cluster of Ascend Operator or of an image, not of this launch",
    ),
    (r"RANKLAUNCH_SECRET", "the key of the job's muster, which is ranklaunch's alone"),
    (
        r"OMPI_MCA_(orte_default_hostfile|prte_default_hostfile)|PRTE_MCA_prte_default_hostfile",
        "hosts by an MPIJob's or an image's own names, by which Open MPI would sort out those of this launch",
    ),
    (
        r"OMPI_COMM_WORLD_[A-Z0-9_]+|PMI_(RANK|SIZE|FD)|PMIX_RANK",
        "left by an outer mpirun; libraries take them for their own",
    ),
)

_PATTERN = re.compile("|".join(pattern for pattern, _ in MISLEADING))


def misleading(env: Mapping[str, str]) -> tuple[str, ...]:
    """Sorted names of the variables in an environment that must not reach the ranks."""
    return tuple(sorted(name for name in env if _PATTERN.fullmatch(name)))
