"""The platforms, in the order in which they are asked whether an environment is theirs."""

from __future__ import annotations

from collections.abc import Sequence

from ranklaunch.adapters.platforms.shared.base import NAMING, PER_RANK, per_rank
from ranklaunch.errors import ConfigError, nearest
from ranklaunch.modules import Modules
from ranklaunch.read.job import Job, Program
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import PLATFORM
from ranklaunch.typed import TYPE_CHECKING, Protocol
from ranklaunch.verdict import folders

BY_SCHEDULER = ("slurm", "lsf", "pbs")  # whose users may start ranklaunch by an mpirun, of which these say nothing


class Platform(Protocol):
    """What a module in this folder offers. VARIABLES: every variable it reads beyond those of ranklaunch.read.settings."""

    NAME: str
    VARIABLES: tuple[Variable[object], ...]

    def detect(self, reader: Reader) -> bool:
        """Whether the environment is this platform's. Never raises."""

    def attempt(self, reader: Reader) -> int:
        """Which start of the job on this node it is, from 1."""

    def read(self, reader: Reader, program: Program) -> Job:
        """The job. Problems go to the reader, which raises them all at once afterwards."""

    def program(self, reader: Reader, words: Sequence[str]) -> Program | None:
        """What it says should run, where it does and the words of the command line name no other."""

    def failure_file(self, reader: Reader) -> str:
        """Where it looks for the reason of a failure, "" where it does not."""

    def log_dir(self, reader: Reader) -> str:
        """The log folder of a job that cannot be made out."""


# How the names of variables begin, or a folder, without one of which an environment is not the platform's: it is not even imported then.
# In the order in which they are asked, the outer of what is inside each other first.
SIGNS: dict[str, tuple[str, ...]] = {
    "modelarts": ("MA_", "DLS_"),
    "metaflow": ("MF_PARALLEL_",),
    "azureml": ("AZUREML_",),
    "slurm": ("SLURM_",),
    "sagemaker": ("SM_", "SAGEMAKER_", "/opt/ml/input/config"),
    "volcengine": ("MLP_",),
    "openpai": ("PAI_",),
    "vertexai": ("CLUSTER_SPEC",),
    "skypilot": ("SKYPILOT_NODE_", "SKYPILOT_SETUP_"),
    "dstack": ("DSTACK_NODE",),
    "aws_batch": ("AWS_BATCH_JOB_NODE_",),
    "gcp_batch": ("BATCH_HOSTS_FILE",),
    "lepton": ("LEPTON_JOB_",),
    "beaker": ("BEAKER_",),
    "determined": ("DET_",),
    "oci": ("JOB_RUN_OCID",),
    "lsf": ("LSB_JOBID",),
    "pbs": ("PBS_JOBID",),
    "flux": ("FLUX_",),
    "mosaicml": ("MOSAICML_",),
    "runpod": ("NUM_TRAINERS",),
    "tione": ("NODE_LIST",),
    "aihc": ("AIHC_",),
    "pai_dlc": ("MASTER_ADDR",),
    "volcano": ("VC_", "VK_", "/etc/volcano"),
    "ascend_operator": ("MINDX_", "NPU_POD"),
    "mpijob": ("K_MPI_JOB_ROLE",),
    "kubeflow_trainer": ("PET_", "JOB_COMPLETION_INDEX"),
    "paddlejob": ("PADDLE_",),
    "pytorchjob": ("MASTER_ADDR",),
    "leaderworkerset": ("LWS_",),
    "jobset": ("JOB_COMPLETION_INDEX",),
    "indexed_job": ("JOB_COMPLETION_INDEX",),
    "local": ("",),
}
# Why a platform stands where it does, if that matters. docs/platforms.md shows both tables.
WHY_THERE: dict[str, str] = {
    "modelarts": "its containers may have anything in them: its job is one of Volcano with more, and has its variables and files too",
    "metaflow": "its step runs on AWS Batch or in a JobSet, whose variables it has too",
    "azureml": "on Kubernetes its job is one of Volcano, whose variables it has too",
    "slurm": "what srun starts belongs to Slurm, whose daemons may run in the containers of the others; Slurm has wrappers that make PBS's "
    "variables",
    "skypilot": "with dstack it rents machines and pods of the others, which have variables of their own",
    "lepton": "its job is an Indexed Job",
    "runpod": "has nothing but common names, by several of which it is known",
    "pai_dlc": "has its own form of `MASTER_ADDR`; `RANK` and `WORLD_SIZE` mean something else where operators of Kubernetes set them",
    "volcano": "the Ascend Operator serves Volcano's jobs as well, whose own variables tell more",
    "kubeflow_trainer": "a TrainJob is a JobSet, and a JobSet is made of Indexed Jobs: the outermost is asked first",
    "pytorchjob": "of before `PET_` variables, by the pod's name and its master's",
    "local": "recognises everything",
}
PLATFORMS: Modules[Platform] = Modules(__name__, tuple(SIGNS))

if TYPE_CHECKING:  # imported when they are asked for, by name, which mypy cannot follow: here it holds each against the protocol
    from ranklaunch.adapters.platforms import (
        aihc,
        ascend_operator,
        aws_batch,
        azureml,
        beaker,
        determined,
        dstack,
        flux,
        gcp_batch,
        indexed_job,
        jobset,
        kubeflow_trainer,
        leaderworkerset,
        lepton,
        local,
        lsf,
        metaflow,
        modelarts,
        mosaicml,
        mpijob,
        oci,
        openpai,
        paddlejob,
        pai_dlc,
        pbs,
        pytorchjob,
        runpod,
        sagemaker,
        skypilot,
        slurm,
        tione,
        vertexai,
        volcano,
        volcengine,
    )

    CHECKED: dict[str, Platform] = {
        "modelarts": modelarts,
        "metaflow": metaflow,
        "azureml": azureml,
        "slurm": slurm,
        "sagemaker": sagemaker,
        "volcengine": volcengine,
        "openpai": openpai,
        "vertexai": vertexai,
        "skypilot": skypilot,
        "dstack": dstack,
        "aws_batch": aws_batch,
        "gcp_batch": gcp_batch,
        "lepton": lepton,
        "beaker": beaker,
        "determined": determined,
        "oci": oci,
        "lsf": lsf,
        "pbs": pbs,
        "flux": flux,
        "mosaicml": mosaicml,
        "runpod": runpod,
        "tione": tione,
        "aihc": aihc,
        "pai_dlc": pai_dlc,
        "volcano": volcano,
        "ascend_operator": ascend_operator,
        "mpijob": mpijob,
        "kubeflow_trainer": kubeflow_trainer,
        "paddlejob": paddlejob,
        "pytorchjob": pytorchjob,
        "leaderworkerset": leaderworkerset,
        "jobset": jobset,
        "indexed_job": indexed_job,
        "local": local,
    }


def may_be(name: str, reader: Reader) -> bool:
    """Whether it is worth asking the platform itself."""
    names = "\n" + "\n".join(reader.env)
    return any(reader.files.is_dir(sign) if sign.startswith("/") else f"\n{sign}" in names for sign in SIGNS[name])


def program(reader: Reader, words: Sequence[str]) -> Program | None:
    return _recognised(reader).program(reader, words)


def failure_file(reader: Reader) -> str:
    return _recognised(reader).failure_file(reader)


def attempt_dir(reader: Reader) -> str:
    """Folder of this attempt's logs, of a job that cannot be made out."""
    platform = _recognised(reader)
    return folders.attempt(platform.log_dir(reader), platform.attempt(reader))


def _recognised(reader: Reader) -> Platform:
    """The one that was asked for, else the first that recognises the environment; for one that does not exist, none."""
    _named(reader)
    name = _asked(reader) or detected(reader)
    return PLATFORMS[name if name in PLATFORMS else "local"]


def _named(reader: Reader) -> None:
    """Hosts that a file or a command names."""
    if any(map(reader.given, NAMING)):
        from ranklaunch.adapters.platforms.shared import named  # most have none

        named.offer(reader)


def _asked(reader: Reader) -> str:
    return reader.get(PLATFORM).strip().lower()


def detected(reader: Reader) -> str:
    return next(name for name in PLATFORMS if may_be(name, reader) and PLATFORMS[name].detect(reader))


def read(reader: Reader, program: Program) -> Job:
    """The job, as its platform reads it."""
    platform = choose(reader)
    job = platform.read(reader, program)
    if platform.NAME in BY_SCHEDULER and not per_rank(reader) and len(job.nodes) == 1:
        from ranklaunch.adapters.platforms.shared import unrecognised  # on these alone

        unrecognised.refuse_mpirun(reader, unrecognised.OF_MPIRUN_HERE)
        unrecognised.refuse_others(reader)
    if per_rank(reader) and not job.among:
        reader.problem(f"{reader.told(PER_RANK)}: platform {platform.NAME} says of no tasks here that each is a rank: leave it out")
    return job


def choose(reader: Reader) -> Platform:
    _named(reader)
    given = _asked(reader)
    if given:
        if given not in PLATFORMS:
            msg = f"{reader.source(PLATFORM)}={given!r}: expected one of {', '.join(PLATFORMS)}{nearest(given, PLATFORMS)}"
            raise ConfigError(msg)
        return PLATFORMS[given]
    found = detected(reader)
    reader.ledger.note(PLATFORM.value, found, "environment")
    return PLATFORMS[found]
