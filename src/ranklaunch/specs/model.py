"""The specification of a job: what every engine's own form is made from. Its keys are those of the Helm chart's values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ranklaunch.env.settings import BY_MPI
from ranklaunch.specs import keys
from ranklaunch.specs.keys import flag, group, objects, pairs, text, texts, whole, wholes

OF_KUBERNETES = ("volcano", "jobset", "job", "trainjob", "mpijob", "acjob")
OF_CLOUDS = ("sky", "dstack", "azureml", "aws_batch")
BY_SCRIPT = ("lsf", "pbs", "flux")  # beside slurm, which has values of its own
KINDS = ("modelarts", *OF_KUBERNETES, "slurm", *OF_CLOUDS, *BY_SCRIPT)
# What `mode` may be, the chart's word for the method.
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
    kind: str = text("gpu", "what the ranks compute on", "gpu", "npu", "cpu")
    resource_name: str = text(
        "", "resource that a node's devices are asked for by; empty: nvidia.com/gpu, huawei.com/Ascend910 or none, by kind",
        pattern=keys.RESOURCE,
    )  # fmt: skip
    extra: Pairs = pairs("further resources of each pod, name: quantity; requested and limited alike", pattern=keys.RESOURCE)


@dataclass(frozen=True)
class Resources:
    cpu: str = text("", "CPUs that each pod asks for; no limit is set", pattern=keys.QUANTITY)
    memory: str = text("", "memory that each pod asks for and is limited to; shm counts against it", pattern=keys.MEMORY)


@dataclass(frozen=True)
class Image:
    repository: str = text(
        "",
        "image without tag, such as registry.example.com/team/train; for slurm also a file; required, except for slurm without a container",
    )
    tag: str = text("", "tag of the image", pattern=keys.TAG)
    digest: str = text("", "digest of the image, before any tag", pattern=keys.DIGEST)
    pull_policy: str = text("IfNotPresent", "when the image is pulled", "IfNotPresent", "Always", "Never")
    pull_secrets: tuple[str, ...] = texts("names of Secrets to pull with", pattern=keys.NAMES)


@dataclass(frozen=True)
class Shm:
    enabled: bool = flag(True, "memory at /dev/shm, for loaders and collectives, in place of the runtime's 64 MiB")
    size_limit: str = text("", "its size; empty: what the pod's memory allows", pattern=keys.MEMORY)


@dataclass(frozen=True)
class Rdma:
    resource: str = text("", "resource of RDMA devices, as rdma/hca; adds the capability IPC_LOCK", pattern=keys.RESOURCE)
    count: int = whole(1, 1, 64, "how many of them each pod asks for")


@dataclass(frozen=True)
class Network:
    host_network: bool = flag(False, "use the hosts' network; their ports are then shared by all jobs")
    rdma: Rdma = group(Rdma)
    interface: str = text("", "network interface between nodes, as RANKLAUNCH_INTERFACE", pattern=keys.INTERFACE)
    master_port: int = whole(0, 0, 65535, "port of the rendezvous, as RANKLAUNCH_MASTER_PORT; 0: the method's own")
    muster_port: int = whole(0, 0, 65535, "port at which nodes meet, as RANKLAUNCH_MUSTER_PORT; 0: 18889")
    ssh_port: int = whole(0, 0, 65535, "port of sshd for MPI, as RANKLAUNCH_SSHD_PORT; 0: 36666")


@dataclass(frozen=True)
class Muster:
    secret_name: str = text(
        "", "Secret of yours with the key of the muster, under the name secret; empty: the key is an id that the cluster gives the job",
        pattern=keys.NAMES,
    )  # fmt: skip


@dataclass(frozen=True)
class RankTable:
    source: str = text(
        "none", "who writes the rank table of Ascend devices; cce: the plugin configmap1980, which Huawei's own Volcano alone has, on CCE "
        "and ModelArts Lite", "none", "ascend-operator", "cce", "file",
    )  # fmt: skip
    config_map_name: str = text(
        "", "ConfigMap with the table; rings-config-NAME with ascend-operator, which is made; required with cce",
        pattern=keys.NAMES,
    )  # fmt: skip
    mount_path: str = text(
        "", "folder of the table, or with source file the file itself, which a volume must bring; empty: "
        "/user/serverid/devindex/config for ascend-operator, /user/config for cce", pattern=keys.PATH,
    )  # fmt: skip
    label: str = text(
        "",
        "chip, for the label ring-controller.atlas or .cce; empty: ascend-910b, or ascend-1980 with cce",
        pattern=keys.CHIP,
    )


@dataclass(frozen=True)
class Scheduling:
    scheduler_name: str = text(
        "", "scheduler; empty: volcano for volcano, acjob, and trainjob with a queue, else the cluster's own", pattern=keys.LABEL
    )
    queue: str = text(
        "", "queue of the engine's scheduler (volcano, acjob, mpijob, trainjob); empty: its own, for acjob default", pattern=keys.LABEL
    )
    priority_class: str = text("", "PriorityClass of the pods", pattern=keys.NAMES)
    min_available: int = whole(0, 0, 1_000_000, "pods without which none starts (volcano, acjob, mpijob); 0: all of them")
    node_selector: Pairs = pairs("labels that a node must have", pattern=keys.RESOURCE)
    tolerations: Objects = objects("tolerations, as Kubernetes has them", "Toleration")
    affinity: Mapping[str, object] = keys.an_object("affinity, as Kubernetes has it", "Affinity")
    topology: str = text("", "label of nodes within one value of which all pods must stand", pattern=keys.RESOURCE)
    kueue_queue: str = text("", "Kueue's LocalQueue (job, jobset, trainjob, mpijob)", pattern=keys.LABEL)


@dataclass(frozen=True)
class Restart:
    max_restarts: int = whole(0, 0, 1000, "how often the whole job is started anew after a failure; 0: never")
    no_retry_exit_codes: tuple[int, ...] = wholes((2, 69, 76, 78), 1, 255, "exit codes after which it never is")
    on_eviction: str = text(
        "", "what the loss of a pod to the cluster does; restart: the whole job; empty: restart where maxRestarts is above 0",
        "", "restart", "fail",
    )  # fmt: skip
    in_place: int = whole(
        0, 0, 1_000_000, "how often all ranks start again in the same pods without progress, as RANKLAUNCH_MAX_RESTARTS; maxRestarts makes "
        "new pods; 0: never",
    )  # fmt: skip

    @property
    def after_eviction(self) -> bool:
        """Whether the whole job is then started anew."""
        return bool(self.max_restarts) and self.on_eviction != "fail"


@dataclass(frozen=True)
class Hang:
    action: str = text(
        "", "what is done where no rank moves, as RANKLAUNCH_HANG; restart needs inPlace; empty: observe", "", "observe", "stop", "restart",
        "off",
    )  # fmt: skip
    seconds: int = whole(0, 0, 10_000_000, "seconds without a sign of life until then, as RANKLAUNCH_HANG_S; 0: 300")


@dataclass(frozen=True)
class Save:
    signal: str = text("", "signal by which ranks are asked to save, as RANKLAUNCH_SAVE_SIGNAL; empty: none", "", "USR1", "USR2", "TERM")
    file: str = text("", "file that is touched where ranks are asked to save, as RANKLAUNCH_SAVE_FILE", pattern=keys.PATH)


@dataclass(frozen=True)
class Metrics:
    enabled: bool = flag(False, "each pod serves metrics of the run, and /healthz and /readyz")
    port: int = whole(9400, 1, 65535, "port of the metrics")
    pod_monitor: bool = flag(False, "make a PodMonitor, by which the Prometheus Operator finds the pods")
    rules: bool = flag(False, "make a PrometheusRule with alerts: hang, slow, restarts, failed")


@dataclass(frozen=True)
class NetworkPolicy:
    enabled: bool = flag(
        False, "make a NetworkPolicy: pods of the run reach each other by every port, others reach that of the metrics alone"
    )
    metrics_namespaces: tuple[str, ...] = texts("namespaces whose pods may read the metrics; empty: all", pattern=keys.LABEL)


@dataclass(frozen=True)
class Lifecycle:
    ttl_seconds: int = whole(DAY, 0, 10_000_000, "a finished job is deleted after so long; 0: never")
    deadline_seconds: int = whole(0, 0, 10_000_000, "the job is ended after so long; 0: never")
    grace_period_seconds: int = whole(60, 10, 86400, "from SIGTERM to SIGKILL of a pod; RANKLAUNCH_GRACE_S is 5 less")
    clean_pod_policy: str = text("Running", "pods that are deleted once the job is done (mpijob, acjob)", "Running", "All", "None")


@dataclass(frozen=True)
class Security:
    run_as_user: int = whole(1000, 0, 2_147_483_647, "user id of the container; 0, which is root, drops runAsNonRoot")
    run_as_group: int = whole(100, -1, 2_147_483_647, "group id of the container; -1: that of the user in the image")
    fs_group: int = whole(
        100, -1, 2_147_483_647, "group that volumes are given to, where their root belongs to another; -1: they stay as they are"
    )
    read_only_root_filesystem: bool = flag(
        False,
        "the image's files cannot be changed; /tmp is an emptyDir then, and has the logs, which go with the pod, unless "
        "env.RANKLAUNCH_LOG_DIR or envFrom names a volume",
    )
    capabilities: tuple[str, ...] = texts("capabilities to add; all others are dropped", pattern=keys.CAPABILITY)


@dataclass(frozen=True)
class Mpi:
    """Keys for ssh are the run's own."""

    slots: int = whole(0, 0, 4096, "ranks of each node (mpijob); 0: devicesPerNode")
    launcher_as_worker: bool = flag(True, "the launcher is a node with ranks; false: a pod without devices beside the nodes (mpijob)")


@dataclass(frozen=True)
class Tf:
    ps: int = whole(0, 0, 10_000, "parameter servers, beside nodes workers (volcano); needs mode tensorflow")


@dataclass(frozen=True)
class Trainer:
    runtime: str = text("", "name of a (Cluster)TrainingRuntime that is there; empty: one is made for this job", pattern=keys.LABEL)
    runtime_kind: str = text("TrainingRuntime", "its kind", "TrainingRuntime", "ClusterTrainingRuntime")


@dataclass(frozen=True)
class ModelArts:
    """Of modelarts alone; the chart has none of these."""

    flavor: str = text("", "flavor id; empty: that of a dedicated pool with devicesPerNode devices")
    pool_id: str = text("", "dedicated resource pool")
    workspace_id: str = text("", "workspace")
    code_dir: str = text("", "OBS folder with the code, such as /bucket/code/", pattern=r"(?:obs:/)?/[^\0]*/")
    local_code_dir: str = text("", "where the code is put, below /home", pattern=r"/home/[^\0]+")
    inputs: Objects = objects("data that is copied in: name, obsUrl, and as an option localDir")
    outputs: Objects = objects("folders that are copied out: name, obsUrl, and as an option localDir")
    log_url: str = text("", "OBS folder for logs, such as /bucket/log/", pattern=r"(?:obs:/)?/[^\0]*/")
    priority: int = whole(0, 0, 3, "1 to 3; 0: the platform's default")
    hang_retry: bool = flag(False, "ModelArts runs the boot command again in the same containers where it takes the job for hung")
    unconditional_retry: bool = flag(False, "ModelArts starts the job anew after any exit code but 0")
    volumes: Objects = objects("volumes, as the API has them: nfs, pfs or obs")
    setup: tuple[str, ...] = texts(
        "lines of the boot command before ranklaunch, as the shell takes them, such as source /usr/local/Ascend/cann/set_env.sh"
    )


@dataclass(frozen=True)
class Slurm:
    """Of slurm alone; the chart has none of these."""

    partition: str = text("", "partition", pattern=r"[A-Za-z0-9_.,+-]+")
    account: str = text("", "account", pattern=r"[A-Za-z0-9_.-]+")
    qos: str = text("", "quality of service", pattern=r"[A-Za-z0-9_.,-]+")
    devices: str = text("", "how devices are asked for; empty: gpus-per-node for gpu, else gres", "", "gpus-per-node", "gres", "none")
    container: str = text("none", "how the image is used; none: the program runs on the host", "none", "pyxis", "apptainer")
    time: str = text(
        "",
        "time limit of each start, as sbatch --time has it (90, 12:00:00, 2-00:00:00); SIGTERM comes lifecycle.gracePeriodSeconds before",
    )
    save_before: int = whole(
        0, 0, 65535, "seconds before the time limit at which the script has all ranks save, stops them and requeues the job; 0: never; "
        "in place of SIGTERM",
    )  # fmt: skip
    output: str = text("", "file of the job's output, as sbatch --output has it (logs/%x-%j.out); its folder must be there")
    setup: tuple[str, ...] = texts("lines of the script before srun, as the shell takes them, such as module load cuda")
    srun_options: tuple[str, ...] = texts("further options of srun, such as --mpi=none", pattern=keys.OPTION)
    directives: tuple[str, ...] = texts("further options of sbatch, such as --exclusive", pattern=keys.OPTION)

    @property
    def time_limit(self) -> str:
        """Time limit of sbatch, from `time` or from --time in `directives`; empty without one."""
        by_directive = (each.partition("=")[2] for each in self.directives if each.startswith("--time="))
        limit = self.time or next(by_directive, "")
        return "" if limit.lower() in UNLIMITED else limit


@dataclass(frozen=True)
class Cloud:
    """Of sky, dstack, aws_batch and azureml alone; the chart has none of these."""

    accelerator: str = text("", "kind of GPU, such as H100 (sky, dstack)", pattern=r"[A-Za-z0-9_.-]+")
    infra: str = text("", "where nodes come from, such as aws/us-east-1 (sky)", pattern=r"[A-Za-z0-9_./*-]+")
    spot: bool = flag(False, "take machines that may be taken away again (sky, dstack)")
    fleets: tuple[str, ...] = texts("names of fleets, whose placement is cluster for several nodes (dstack)", pattern=keys.LABEL)
    instance_type: str = text("", "type of instance, such as p5.48xlarge (aws_batch)", pattern=r"[A-Za-z0-9_.-]+")
    role: str = text("", "ARN of the role of the containers (aws_batch)", pattern=keys.ARN)
    execution_role: str = text("", "ARN of the role that starts them, which secrets need (aws_batch)", pattern=keys.ARN)
    compute: str = text("", "cluster, such as azureml:gpu-cluster (azureml)")
    code: str = text("", "folder on this machine that is brought to the nodes (sky: workdir, azureml: code)")
    secrets: Pairs = pairs(
        "environment from secrets, NAME: what they are called there (dstack: the secret; aws_batch: its ARN; sky: empty, given at launch)",
        pattern=keys.VARIABLE,
    )  # fmt: skip


@dataclass(frozen=True)
class Batch:
    """Of lsf, pbs and flux alone; the chart has none of these."""

    queue: str = text("", "queue")
    account: str = text("", "project or account that pays: bsub -P, qsub -A, flux --bank")
    output: str = text("", "file of the job's output, as the system has it")
    setup: tuple[str, ...] = texts("lines of the script before the start, as the shell takes them, such as module load cuda")
    directives: tuple[str, ...] = texts("further options of bsub, qsub or flux batch, such as -x, -l place=excl or --requires=gpu")


@dataclass(frozen=True)
class JobSpec:
    engine: str = text("volcano", "what runs the job; ranklaunch spec KIND overrides it, and has further kinds", *KINDS)
    name: str = text("", "name of the job; in the chart empty: that of the release")
    namespace: str = text("", "namespace; the chart takes that of the release", pattern=keys.LABEL)
    mode: str = text("auto", "how ranks are started, as RANKLAUNCH_METHOD; auto: by what is there, mpirun with mpijob", *METHODS)
    nodes: int = whole(1, 1, 100_000, "number of nodes; one pod each")
    devices_per_node: int = whole(1, 0, 1024, "devices of each node, and ranks on it; with cpu ranks alone, 0: one")
    device: Device = group(Device)
    resources: Resources = group(Resources)
    image: Image = group(Image)
    script: str = text("", "program: a .py or .sh file or an executable, as it is called in the container; this or module is required")
    module: str = text("", "Python module in place of script, as by python -m", pattern=keys.MODULE)
    args: tuple[str, ...] = texts("arguments of the program")
    env: Pairs = pairs("environment, name: string", pattern=keys.VARIABLE)
    env_from: Objects = objects("ConfigMaps and Secrets that become environment, as Kubernetes' envFrom", "EnvFromSource")
    extra_env: Objects = objects("further environment, as Kubernetes' env: with valueFrom, and with $(NAME) for another", "EnvVar")
    working_dir: str = text("", "folder that the program starts in; empty: the image's", pattern=keys.PATH)
    volumes: Objects = objects("volumes of the pods, as Kubernetes has them", "Volume")
    volume_mounts: Objects = objects("where they are mounted, as Kubernetes has it", "VolumeMount")
    init_containers: Objects = objects("containers that end before the program starts, as Kubernetes has them", "Container")
    extra_containers: Objects = objects(
        "containers beside the program, as Kubernetes has them; as sidecars, which start before it and end after it (not acjob)",
        "Container",
    )
    pod_template: Mapping[str, object] = keys.an_object(
        "further fields of the pods' spec, as Kubernetes has them: dnsConfig, dnsPolicy, hostAliases, hostIPC, hostPID, hostUsers, "
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
        "", "chart only. values: a digest of the values follows the name, so that an upgrade with others is a new run; revision: the "
        "release's revision, so that every upgrade is one", "", "values", "revision",
    )  # fmt: skip
    labels: Pairs = pairs("further labels of all objects and pods", pattern=keys.RESOURCE)
    annotations: Pairs = pairs("further annotations of all objects and pods", pattern=keys.RESOURCE)
    modelarts: ModelArts = group(ModelArts)
    slurm: Slurm = group(Slurm)
    cloud: Cloud = group(Cloud)
    batch: Batch = group(Batch)
