"""The specification of a job, from which the form of each engine is made. The Helm chart's values have the same keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ranklaunch.env.settings import BY_MPI
from ranklaunch.specs import keys
from ranklaunch.specs.keys import flag, group, objects, pairs, text, texts, whole, wholes

OF_KUBERNETES = ("volcano", "jobset", "job", "trainjob", "mpijob", "acjob")
OF_CLOUDS = ("sky", "dstack", "azureml", "aws_batch")
BY_SCRIPT = ("lsf", "pbs", "flux")  # batch systems with the values `batch`; slurm has values of its own
KINDS = ("modelarts", *OF_KUBERNETES, "slurm", *OF_CLOUDS, *BY_SCRIPT)
# Legal values of `mode`, the method.
METHODS = (
    "auto", "ranktable", "torchrun", "msrun", "pytorch", "tensorflow", "mpirun", "deepspeed", "accelerate", "megatron", "jax", "ray",
    "spawn", "plain", "mpi", "horovod",
)  # fmt: skip
BY_NAMES = (*BY_MPI, "deepspeed", "tensorflow", "ray")  # nodes other than node 0 are reached by their names
DAY = 24 * 3600
UNLIMITED = ("unlimited", "infinite", "0", "-1")  # times of sbatch without an end

Objects = tuple[Mapping[str, object], ...]
Pairs = Mapping[str, str]


@dataclass(frozen=True)
class Device:
    kind: str = text("gpu", "accelerator that the ranks compute on", "gpu", "npu", "cpu")
    resource_name: str = text(
        "", "resource name of the devices; empty: nvidia.com/gpu for gpu, huawei.com/Ascend910 for npu, none for cpu",
        pattern=keys.RESOURCE,
    )  # fmt: skip
    extra: Pairs = pairs("further resources of each pod, as name: quantity; both request and limit", pattern=keys.RESOURCE)


@dataclass(frozen=True)
class Resources:
    cpu: str = text("", "CPU request of each pod; no limit is set", pattern=keys.QUANTITY)
    memory: str = text("", "memory request and limit of each pod; /dev/shm counts against it", pattern=keys.MEMORY)


@dataclass(frozen=True)
class Image:
    repository: str = text(
        "",
        "image without its tag, such as registry.example.com/team/train, or for slurm an image file; required, except for "
        "slurm without a container",
    )
    tag: str = text("", "tag of the image", pattern=keys.TAG)
    digest: str = text("", "digest of the image; takes precedence over the tag", pattern=keys.DIGEST)
    pull_policy: str = text("IfNotPresent", "when the image is pulled", "IfNotPresent", "Always", "Never")
    pull_secrets: tuple[str, ...] = texts("names of Secrets with the registry's credentials", pattern=keys.NAMES)


@dataclass(frozen=True)
class Shm:
    enabled: bool = flag(
        True, "mount memory at /dev/shm, for data loaders and collectives; the container runtime's own /dev/shm has 64 MiB"
    )
    size_limit: str = text("", "size of /dev/shm; empty: as much as the pod's memory allows", pattern=keys.MEMORY)


@dataclass(frozen=True)
class Rdma:
    resource: str = text("", "resource name of RDMA devices, such as rdma/hca; adds the capability IPC_LOCK", pattern=keys.RESOURCE)
    count: int = whole(1, 1, 64, "number of RDMA devices that each pod requests")


@dataclass(frozen=True)
class Network:
    host_network: bool = flag(False, "use the host's network; all jobs on a host then share its ports")
    rdma: Rdma = group(Rdma)
    interface: str = text("", "network interface between nodes (RANKLAUNCH_INTERFACE)", pattern=keys.INTERFACE)
    master_port: int = whole(0, 0, 65535, "port of the rendezvous (RANKLAUNCH_MASTER_PORT); 0: the method's default")
    muster_port: int = whole(0, 0, 65535, "port of the start barrier, the muster (RANKLAUNCH_MUSTER_PORT); 0: 18889")
    ssh_port: int = whole(0, 0, 65535, "port of sshd for MPI (RANKLAUNCH_SSHD_PORT); 0: 36666")


@dataclass(frozen=True)
class Muster:
    secret_name: str = text(
        "", "name of your Secret with the muster's key, in its entry secret; empty: the key is derived from an id that the cluster "
        "gives the job",
        pattern=keys.NAMES,
    )  # fmt: skip


@dataclass(frozen=True)
class RankTable:
    source: str = text(
        "none", "writer of the rank table of Ascend devices; cce: the plugin configmap1980, which only Huawei's Volcano has (CCE, "
        "ModelArts Lite); file: you, on a volume", "none", "ascend-operator", "cce", "file",
    )  # fmt: skip
    config_map_name: str = text(
        "", "ConfigMap with the rank table; ascend-operator: rings-config-NAME, which is made; cce: required",
        pattern=keys.NAMES,
    )  # fmt: skip
    mount_path: str = text(
        "", "folder in the container for the rank table; with source file: path of the table itself, on a volume; empty: "
        "/user/serverid/devindex/config for ascend-operator, /user/config for cce", pattern=keys.PATH,
    )  # fmt: skip
    label: str = text(
        "",
        "chip: value of the label ring-controller.atlas, or ring-controller.cce; empty: ascend-910b, or ascend-1980 with cce",
        pattern=keys.CHIP,
    )


@dataclass(frozen=True)
class Scheduling:
    scheduler_name: str = text(
        "",
        "name of the scheduler; empty: volcano for volcano, acjob, and trainjob with a queue, else the cluster's default",
        pattern=keys.LABEL,
    )
    queue: str = text(
        "",
        "queue of the engine's scheduler (volcano, acjob, mpijob, trainjob); empty: the scheduler's default (acjob: the queue default)",
        pattern=keys.LABEL,
    )
    priority_class: str = text("", "PriorityClass of the pods", pattern=keys.NAMES)
    min_available: int = whole(
        0, 0, 1_000_000, "size of the gang: pods start only when so many can be placed (volcano, acjob, mpijob); 0: all pods"
    )
    node_selector: Pairs = pairs("labels that a node must have", pattern=keys.RESOURCE)
    tolerations: Objects = objects("tolerations of the pods, in Kubernetes' form", "Toleration")
    affinity: Mapping[str, object] = keys.an_object("affinity of the pods, in Kubernetes' form", "Affinity")
    topology: str = text("", "node label (such as a rack label): all pods run on nodes with the same value of it", pattern=keys.RESOURCE)
    kueue_queue: str = text("", "name of Kueue's LocalQueue (job, jobset, trainjob, mpijob)", pattern=keys.LABEL)


@dataclass(frozen=True)
class Restart:
    max_restarts: int = whole(0, 0, 1000, "number of times that the whole job is restarted, with new pods, after a failure; 0: never")
    no_retry_exit_codes: tuple[int, ...] = wholes((2, 69, 76, 78), 1, 255, "exit codes after which the whole job is never restarted")
    on_eviction: str = text(
        "", "reaction when the cluster takes a pod away (eviction, preemption); restart: restart the whole job; fail: fail the "
        "job; empty: restart if maxRestarts is above 0",
        "", "restart", "fail",
    )  # fmt: skip
    in_place: int = whole(
        0, 0, 1_000_000, "number of times that all ranks are restarted in the same pods without progress in between "
        "(RANKLAUNCH_MAX_RESTARTS); 0: never",
    )  # fmt: skip

    @property
    def after_eviction(self) -> bool:
        """True if the whole job restarts after an eviction."""
        return bool(self.max_restarts) and self.on_eviction != "fail"


@dataclass(frozen=True)
class Hang:
    action: str = text(
        "", "reaction to a hang, in which no rank makes progress (RANKLAUNCH_HANG); restart needs restart.inPlace; empty: "
        "observe", "", "observe", "stop", "restart",
        "off",
    )  # fmt: skip
    seconds: int = whole(0, 0, 10_000_000, "seconds without any sign of life before the job counts as hung (RANKLAUNCH_HANG_S); 0: 300")


@dataclass(frozen=True)
class Save:
    signal: str = text(
        "", "signal that asks the ranks to save a checkpoint (RANKLAUNCH_SAVE_SIGNAL); empty: none", "", "USR1", "USR2", "TERM"
    )
    file: str = text("", "file that is touched to ask the ranks to save a checkpoint (RANKLAUNCH_SAVE_FILE)", pattern=keys.PATH)


@dataclass(frozen=True)
class Metrics:
    enabled: bool = flag(False, "serve metrics of the run, /healthz and /readyz in each pod")
    port: int = whole(9400, 1, 65535, "port of the metrics")
    pod_monitor: bool = flag(False, "make a PodMonitor, so that the Prometheus Operator finds the pods")
    rules: bool = flag(False, "make a PrometheusRule with alerts: hang, slow, restarts, failed")


@dataclass(frozen=True)
class NetworkPolicy:
    enabled: bool = flag(
        False, "make a NetworkPolicy: pods of the run reach each other on every port, other pods reach only the metrics port"
    )
    metrics_namespaces: tuple[str, ...] = texts("namespaces whose pods may read the metrics; empty: all", pattern=keys.LABEL)


@dataclass(frozen=True)
class Lifecycle:
    ttl_seconds: int = whole(DAY, 0, 10_000_000, "seconds until a finished job is deleted; 0: never")
    deadline_seconds: int = whole(0, 0, 10_000_000, "time limit of the job in seconds; 0: none")
    grace_period_seconds: int = whole(60, 10, 86400, "seconds from SIGTERM to SIGKILL of a pod; RANKLAUNCH_GRACE_S is 5 less")
    clean_pod_policy: str = text("Running", "pods that are deleted when the job ends (mpijob, acjob)", "Running", "All", "None")


@dataclass(frozen=True)
class Security:
    run_as_user: int = whole(1000, 0, 2_147_483_647, "user id of the container; 0 (root) sets runAsNonRoot to false")
    run_as_group: int = whole(100, -1, 2_147_483_647, "group id of the container; -1: the group of the image's user")
    fs_group: int = whole(
        100, -1, 2_147_483_647, "group that a volume is changed to if its root folder has another group; -1: volumes stay unchanged"
    )
    read_only_root_filesystem: bool = flag(
        False,
        "make the image's files read-only; /tmp is then an emptyDir with the logs, which are lost with the pod unless "
        "env.RANKLAUNCH_LOG_DIR or envFrom names a volume",
    )
    capabilities: tuple[str, ...] = texts("capabilities to add; the rest is dropped", pattern=keys.CAPABILITY)


@dataclass(frozen=True)
class Mpi:
    """Settings for MPI. The SSH keys are made for each run."""

    slots: int = whole(0, 0, 4096, "ranks on each node (mpijob); 0: devicesPerNode")
    launcher_as_worker: bool = flag(
        True, "the launcher is node 0 and has ranks; false: the launcher is an extra pod without devices (mpijob)"
    )


@dataclass(frozen=True)
class Tf:
    ps: int = whole(0, 0, 10_000, "number of parameter servers; nodes is the number of workers (volcano); needs mode tensorflow")


@dataclass(frozen=True)
class Trainer:
    runtime: str = text("", "name of an existing (Cluster)TrainingRuntime; empty: one is made for this job", pattern=keys.LABEL)
    runtime_kind: str = text("TrainingRuntime", "kind of trainer.runtime", "TrainingRuntime", "ClusterTrainingRuntime")


@dataclass(frozen=True)
class ModelArts:
    """Values of kind modelarts; not in the chart."""

    flavor: str = text("", "flavor id; empty: the flavor of a dedicated pool with devicesPerNode devices")
    pool_id: str = text("", "dedicated resource pool")
    workspace_id: str = text("", "workspace")
    code_dir: str = text("", "OBS folder with the code, such as /bucket/code/", pattern=r"(?:obs:/)?/[^\0]*/")
    local_code_dir: str = text("", "folder of the code in the container, below /home", pattern=r"/home/[^\0]+")
    inputs: Objects = objects("folders to copy into the container: name, obsUrl, optionally localDir")
    outputs: Objects = objects("folders to copy out of the container: name, obsUrl, optionally localDir")
    log_url: str = text("", "OBS folder for logs, such as /bucket/log/", pattern=r"(?:obs:/)?/[^\0]*/")
    priority: int = whole(0, 0, 3, "1 to 3; 0: the platform's default")
    hang_retry: bool = flag(False, "ModelArts runs the boot command again in the same containers if it considers the job hung")
    unconditional_retry: bool = flag(False, "ModelArts restarts the job after any exit code but 0")
    volumes: Objects = objects("volumes, in the form of the API: nfs, pfs or obs")
    setup: tuple[str, ...] = texts("shell lines of the boot command before ranklaunch, such as source /usr/local/Ascend/cann/set_env.sh")


@dataclass(frozen=True)
class Slurm:
    """Values of kind slurm; not in the chart."""

    partition: str = text("", "partition", pattern=r"[A-Za-z0-9_.,+-]+")
    account: str = text("", "account", pattern=r"[A-Za-z0-9_.-]+")
    qos: str = text("", "quality of service", pattern=r"[A-Za-z0-9_.,-]+")
    devices: str = text("", "option that requests devices; empty: gpus-per-node for gpu, else gres", "", "gpus-per-node", "gres", "none")
    container: str = text("none", "container tool for the image; none: the program runs on the host", "none", "pyxis", "apptainer")
    time: str = text(
        "",
        "time limit of each start, in the form of sbatch --time (90, 12:00:00, 2-00:00:00); SIGTERM comes lifecycle.gracePeriodSeconds "
        "before",
    )
    save_before: int = whole(
        0, 0, 65535, "seconds before the time limit at which the script asks all ranks to save, stops them and requeues the job, in place "
        "of SIGTERM; 0: never",
    )  # fmt: skip
    output: str = text("", "file of the job's output, in the form of sbatch --output (logs/%x-%j.out); its folder must exist")
    setup: tuple[str, ...] = texts("shell lines of the script before srun, such as module load cuda")
    srun_options: tuple[str, ...] = texts("further options of srun, such as --mpi=none", pattern=keys.OPTION)
    directives: tuple[str, ...] = texts("further options of sbatch, such as --exclusive", pattern=keys.OPTION)

    @property
    def time_limit(self) -> str:
        """Time limit for sbatch, from `time` or from --time in `directives`; empty without a limit."""
        by_directive = (each.partition("=")[2] for each in self.directives if each.startswith("--time="))
        limit = self.time or next(by_directive, "")
        return "" if limit.lower() in UNLIMITED else limit


@dataclass(frozen=True)
class Cloud:
    """Values of kinds sky, dstack, aws_batch and azureml; not in the chart."""

    accelerator: str = text("", "kind of GPU, such as H100 (sky, dstack)", pattern=r"[A-Za-z0-9_.-]+")
    infra: str = text("", "cloud and region of the nodes, such as aws/us-east-1 (sky)", pattern=r"[A-Za-z0-9_./*-]+")
    spot: bool = flag(False, "use spot machines, which the cloud may take away (sky, dstack)")
    fleets: tuple[str, ...] = texts("names of fleets (dstack); several nodes need a fleet with placement cluster", pattern=keys.LABEL)
    instance_type: str = text("", "type of instance, such as p5.48xlarge (aws_batch)", pattern=r"[A-Za-z0-9_.-]+")
    role: str = text("", "ARN of the role of the containers (aws_batch)", pattern=keys.ARN)
    execution_role: str = text("", "ARN of the role that starts the containers; required for secrets (aws_batch)", pattern=keys.ARN)
    compute: str = text("", "cluster, such as azureml:gpu-cluster (azureml)")
    code: str = text("", "folder on this machine to copy to the nodes (sky: workdir, azureml: code)")
    secrets: Pairs = pairs(
        "variables from secrets, NAME: secret on the platform (dstack: its name; aws_batch: its ARN; sky: empty, given at launch)",
        pattern=keys.VARIABLE,
    )  # fmt: skip


@dataclass(frozen=True)
class Batch:
    """Values of kinds lsf, pbs and flux; not in the chart."""

    queue: str = text("", "queue")
    account: str = text("", "project or account that pays: bsub -P, qsub -A, flux --bank")
    output: str = text("", "file of the job's output, in the form of the batch system")
    setup: tuple[str, ...] = texts("shell lines of the script before the start, such as module load cuda")
    directives: tuple[str, ...] = texts("further options of bsub, qsub or flux batch, such as -x, -l place=excl or --requires=gpu")


@dataclass(frozen=True)
class JobSpec:
    engine: str = text("volcano", "system that runs the job; ranklaunch spec KIND overrides this value, and has further kinds", *KINDS)
    name: str = text("", "name of the job; empty in the chart: the release's name")
    namespace: str = text("", "namespace; the chart uses the release's", pattern=keys.LABEL)
    mode: str = text("auto", "launch method (RANKLAUNCH_METHOD); auto: detected in the container, mpirun with mpijob", *METHODS)
    nodes: int = whole(1, 1, 100_000, "number of nodes; one pod each")
    devices_per_node: int = whole(
        1, 0, 1024, "devices of each node, and number of its ranks; with device.kind cpu, number of ranks alone (0: one)"
    )
    device: Device = group(Device)
    resources: Resources = group(Resources)
    image: Image = group(Image)
    script: str = text("", "program: a .py or .sh file or an executable, by its path in the container; script or module is required")
    module: str = text("", "Python module that runs instead of script, as with python -m", pattern=keys.MODULE)
    args: tuple[str, ...] = texts("arguments of the program")
    env: Pairs = pairs("environment variables, as name: string", pattern=keys.VARIABLE)
    env_from: Objects = objects(
        "ConfigMaps and Secrets that become environment variables, in the form of Kubernetes' envFrom", "EnvFromSource"
    )
    extra_env: Objects = objects(
        "further environment variables, in the form of Kubernetes' env: with valueFrom, and with $(NAME) for another variable", "EnvVar"
    )
    working_dir: str = text("", "working directory of the program; empty: the image's", pattern=keys.PATH)
    volumes: Objects = objects("volumes of the pods, in Kubernetes' form", "Volume")
    volume_mounts: Objects = objects("mounts of volumes in the program's container, in Kubernetes' form", "VolumeMount")
    init_containers: Objects = objects("containers that end before the program starts, in Kubernetes' form", "Container")
    extra_containers: Objects = objects(
        "containers beside the program, in Kubernetes' form; they become sidecars, which start before the program and end "
        "after it (not acjob)",
        "Container",
    )
    pod_template: Mapping[str, object] = keys.an_object(
        "further fields of the pods' spec, in Kubernetes' form: dnsConfig, dnsPolicy, hostAliases, hostIPC, hostPID, hostUsers, "
        "nodeName, preemptionPolicy, runtimeClassName, schedulingGates, securityContext, shareProcessNamespace, topologySpreadConstraints",
        "PodTemplate",
    )
    shm: Shm = group(Shm)
    network: Network = group(Network)
    muster: Muster = group(Muster)
    rank_table: RankTable = group(RankTable)
    scheduling: Scheduling = group(Scheduling)
    restart: Restart = group(Restart)
    hang: Hang = group(Hang)
    save: Save = group(Save)
    metrics: Metrics = group(Metrics)
    network_policy: NetworkPolicy = group(NetworkPolicy)
    lifecycle: Lifecycle = group(Lifecycle)
    security: Security = group(Security)
    mpi: Mpi = group(Mpi)
    tf: Tf = group(Tf)
    trainer: Trainer = group(Trainer)
    service_account_name: str = text("", "ServiceAccount of the pods; its token is never mounted", pattern=keys.NAMES)
    name_suffix: str = text(
        "", "suffix of the name, chart only. values: a digest of the values, so that an upgrade with other values is a new run; "
        "revision: the release's revision, so that every upgrade is a new run", "", "values", "revision",
    )  # fmt: skip
    labels: Pairs = pairs("further labels of all objects and pods", pattern=keys.RESOURCE)
    annotations: Pairs = pairs("further annotations of all objects and pods", pattern=keys.RESOURCE)
    modelarts: ModelArts = group(ModelArts)
    slurm: Slurm = group(Slurm)
    cloud: Cloud = group(Cloud)
    batch: Batch = group(Batch)
