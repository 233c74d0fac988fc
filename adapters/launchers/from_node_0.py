"""What launchers on node 0 that start the ranks of all nodes have in common: mpirun, and DeepSpeed's but no_ssh."""

from __future__ import annotations

from ranklaunch.settings import Reader

OPEN_MPI_AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def open_mpi_by_hostfile(reader: Reader) -> dict[str, str]:
    """What Open MPI reads from the environment, so that its hosts and slots are those of the hostfile. Under Slurm it would take srun's
    tasks for slots, of which each node has one, and start its daemons by another srun, which waits until this one has ended."""
    in_slurm = any(name.startswith("SLURM_") for name in reader.env)
    not_slurm = {f"{runtime}_MCA_{framework}": "^slurm" for runtime in ("OMPI", "PRTE") for framework in ("ras", "plm")}
    return {"OMPI_MCA_orte_keep_fqdn_hostnames": "1", **(not_slurm if in_slurm else {})}
