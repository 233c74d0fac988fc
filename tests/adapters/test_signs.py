"""Which place an environment is of: two places at once, half a place's sign, and what places leave on machines that are none of their
jobs. A platform is added by a row of SAMPLES."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import NamedTuple

import helpers
from recorded_places import recorded_cases

from ranklaunch.adapters import platforms
from ranklaunch.adapters.platforms import PLATFORMS
from ranklaunch.errors import ConfigError
from ranklaunch.fields import NOTHING


class Sample(NamedTuple):
    """sign: what makes the environment this place's, none of which may be missing. rest: what else a node of two has there."""

    sign: dict[str, str]
    rest: Mapping[str, str] = NOTHING
    files: Mapping[str, str] = NOTHING


RENDEZVOUS = PLATFORMS.rows["determined"].json_file
POD = {"/etc/hosts": "10.244.0.9\tjob-part-0-1.job.team-a.svc.cluster.local\tjob-part-0-1\n"}
SAMPLES = {
    "modelarts": Sample({"MA_NUM_HOSTS": "2"}, {"VC_TASK_INDEX": "1", "VC_WORKER_HOSTS": "a,b"}),
    "metaflow": Sample({"MF_PARALLEL_NUM_NODES": "2", "MF_PARALLEL_NODE_INDEX": "1"}, {"MF_PARALLEL_MAIN_IP": "10.0.1.1"}),
    "azureml": Sample({"AZUREML_RUN_ID": "x1", "AZ_BATCH_HOST_LIST": "10.0.2.1,10.0.2.2"}, {"AZ_BATCHAI_TASK_INDEX": "1"}),
    "slurm": Sample({"SLURM_JOB_ID": "7", "SLURM_STEP_NODELIST": "n[1-2]"}, {"SLURM_STEP_ID": "0", "SLURM_NODEID": "1"}),
    "sagemaker": Sample({"SM_HOSTS": '["algo-1","algo-2"]'}, {"SM_CURRENT_HOST": "algo-2"}),
    "volcengine": Sample({"MLP_TASK_ID": "t-1", "MLP_WORKER_NUM": "2"}, {"MLP_ROLE_INDEX": "1", "MLP_WORKER_0_HOST": "10.0.3.1"}),
    "openpai": Sample(
        {"PAI_CURRENT_TASK_ROLE_NAME": "w", "PAI_TASK_ROLE_LIST": "w"},
        {"PAI_TASK_ROLE_TASK_COUNT_w": "2", "PAI_HOST_IP_w_0": "10.0.4.1", "PAI_HOST_IP_w_1": "10.0.4.2", "PAI_TASK_INDEX": "1"},
    ),
    "vertexai": Sample(
        {"CLUSTER_SPEC": '{"cluster": {"workerpool0": ["a:1"], "workerpool1": ["b:1"]}, "task": {"type": "workerpool1", "index": 0}}'}
    ),
    "skypilot": Sample({"SKYPILOT_NODE_RANK": "1", "SKYPILOT_NODE_IPS": "10.0.5.1\n10.0.5.2"}, {"SKYPILOT_NUM_NODES": "2"}),
    "dstack": Sample({"DSTACK_NODE_RANK": "1", "DSTACK_NODES_NUM": "2"}, {"DSTACK_MASTER_NODE_IP": "10.0.6.1"}),
    "aws_batch": Sample(
        {"AWS_BATCH_JOB_NUM_NODES": "2", "AWS_BATCH_JOB_NODE_INDEX": "1"}, {"AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS": "10.0.7.1"}
    ),
    "gcp_batch": Sample({"BATCH_TASK_INDEX": "1", "BATCH_HOSTS_FILE": "/hosts"}, {"HOSTNAME": "vm-1"}, {"/hosts": "vm-0\nvm-1\n"}),
    "lepton": Sample(
        {"LEPTON_JOB_NAME": "ft", "LEPTON_JOB_WORKER_INDEX": "1"},
        {"LEPTON_JOB_TOTAL_WORKERS": "2", "LEPTON_SUBDOMAIN": "ft-svc", "JOB_COMPLETION_INDEX": "1"},
    ),
    "beaker": Sample(
        {"BEAKER_JOB_ID": "01J", "BEAKER_NODE_ID": "01N"},
        {"BEAKER_REPLICA_COUNT": "2", "BEAKER_REPLICA_RANK": "1", "BEAKER_LEADER_REPLICA_HOSTNAME": "g1", "BEAKER_NODE_HOSTNAME": "g2"},
    ),
    "determined": Sample(
        {"DET_ALLOCATION_ID": "7.a.1"},
        {"DET_TASK_ID": "7.a"},
        {RENDEZVOUS: '{"container_addrs": ["10.0.9.1", "10.0.9.2"], "container_rank": 1, "container_slot_counts": [1, 1]}'},
    ),
    "oci": Sample({"JOB_RUN_OCID": "o", "NODE_RANK": "1", "INITIAL_CLUSTER_SIZE": "2"}, {"RANKLAUNCH_MASTER_ADDR": "10.0.10.1"}),
    "lsf": Sample({"LSB_JOBID": "7", "LSB_MCPU_HOSTS": "g1 16 g2 16"}, {"LSF_PM_TASKID": "2", "HOSTNAME": "g2"}),
    "pbs": Sample({"PBS_JOBID": "7.s", "PBS_NODENUM": "1"}, {"RANKLAUNCH_HOSTS": "g1,g2", "PBS_TASKNUM": "40000001"}),
    "flux": Sample(
        {"FLUX_JOB_ID": "f7", "FLUX_TASK_RANK": "1"},
        {"FLUX_JOB_NNODES": "2", "FLUX_JOB_SIZE": "2", "FLUX_TASK_LOCAL_ID": "0", "RANKLAUNCH_MASTER_ADDR": "g1"},
    ),
    "mosaicml": Sample(
        {"MOSAICML_PLATFORM": "true", "NUM_NODES": "2"},
        {"NODE_RANK": "1", "LOCAL_WORLD_SIZE": "8", "WORLD_SIZE": "16", "MASTER_ADDR": "10.0.11.1"},
    ),
    "runpod": Sample(
        {"NODE_ADDR": "10.0.8.2", "PRIMARY_ADDR": "10.0.8.1", "NUM_TRAINERS": "8", "NUM_NODES": "2"},
        {"NODE_RANK": "1", "MASTER_ADDR": "10.0.8.1", "WORLD_SIZE": "16", "RUNPOD_POD_ID": "k3x9"},
    ),
    "tione": Sample(
        {"NODE_LIST": "t-launcher:8,t-worker-0:8", "INDEX": "1", "GPU_NUM_PER_NODE": "8"},
        {"MASTER_ADDR": "10.0.12.1", "RANK": "1", "WORLD_SIZE": "2"},
    ),
    "aihc": Sample({"AIHC_JOB_NAME": "pj", "WORLD_SIZE": "2", "RANK": "1"}, {"MASTER_ADDR": "pj-master-0", "HOSTNAME": "pj-worker-0"}),
    "pai_dlc": Sample({"MASTER_ADDR": "dlc18is-master-0", "WORLD_SIZE": "2", "RANK": "1"}),
    "volcano": Sample({"VC_WORKER_HOSTS": "j-worker-0.j,j-worker-1.j"}, {"HOSTNAME": "j-worker-1"}),
    "ascend_operator": Sample({"MINDX_TASK_ID": "6f1f"}, {"RANK": "1", "WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8", "MASTER_ADDR": "svc"}),
    "mpijob": Sample({"K_MPI_JOB_ROLE": "worker"}, {"HOSTNAME": "j-worker-0", "RANKLAUNCH_NODES": "2"}),
    "kubeflow_trainer": Sample({"PET_NNODES": "2", "PET_NODE_RANK": "1", "PET_MASTER_ADDR": "j-node-0-0.j"}, {"PET_NPROC_PER_NODE": "8"}),
    "paddlejob": Sample({"PADDLE_JOB_ID": "p", "PADDLE_NNODES": "2"}, {"HOSTNAME": "p-worker-1"}),
    "pytorchjob": Sample({"WORLD_SIZE": "2", "RANK": "1", "MASTER_ADDR": "b-master-0", "HOSTNAME": "b-worker-0"}),
    "leaderworkerset": Sample({"LWS_LEADER_ADDRESS": "l-0.l.n", "LWS_GROUP_SIZE": "2"}, {"LWS_WORKER_INDEX": "1", "HOSTNAME": "l-0-1"}),
    "jobset": Sample({"JOB_COMPLETION_INDEX": "1", "HOSTNAME": "job-part-0-1"}, {"RANKLAUNCH_NODES": "2"}, POD),
    "indexed_job": Sample({"JOB_COMPLETION_INDEX": "1"}, {"RANKLAUNCH_NODES": "2", "RANKLAUNCH_MASTER_ADDR": "m"}),
}
# What is on machines and in pods that are no node of a job there: shells, notebooks, login nodes, members of arrays.
LEFTOVERS: dict[str, dict[str, str]] = {
    "a laptop that uses SkyPilot": {"SKYPILOT_API_SERVER_ENDPOINT": "https://sky.example.com", "SKYPILOT_DEBUG": "1"},
    "a laptop that uses dstack": {"DSTACK_TOKEN": "x", "DSTACK_PROJECT": "main", "DSTACK_SHIM_HOME": "/root/.dstack"},
    "an array's member of AWS Batch": {"AWS_BATCH_JOB_ID": "7f:3", "AWS_BATCH_JOB_ATTEMPT": "2", "AWS_BATCH_JOB_ARRAY_INDEX": "3"},
    "a notebook of Azure ML": {"AZUREML_ARM_RESOURCEGROUP": "ml", "AZUREML_ARM_WORKSPACE_NAME": "w", "NODE_RANK": "0", "MASTER_ADDR": "a"},
    "one process of Azure ML": {"AZUREML_RUN_ID": "x", "AZUREML_ARM_SUBSCRIPTION": "s"},
    "a plain pod of RunPod": {"RUNPOD_POD_ID": "k3x9", "RUNPOD_GPU_COUNT": "2"},
    "a pod of Lepton that is no job's": {"LEPTON_WORKSPACE_ID": "w", "LEPTON_RESOURCE_ACCELERATOR_NUM": "1"},
    "a laptop that uses Metaflow": {"METAFLOW_USER": "ann", "METAFLOW_DEFAULT_METADATA": "local"},
    "an independent task of Google Cloud Batch": {"BATCH_TASK_INDEX": "3", "BATCH_TASK_COUNT": "9"},
    "a login node of Slurm": {"SLURM_CONF": "/etc/slurm/slurm.conf", "SLURM_NTASKS": "8"},
    "a login node of PBS": {"PBS_O_HOST": "login1", "PBS_CONF_FILE": "/etc/pbs.conf", "PBS_NODEFILE": "/x"},
    "a login node of LSF": {"LSF_ENVDIR": "/opt/lsf/conf", "LSF_BINDIR": "/x", "LSB_MCPU_HOSTS": "a 1 b 1"},
    "a login node of Flux": {"FLUX_URI": "local:///run/flux/local"},
    "a laptop that uses Beaker and others": {
        "BEAKER_TOKEN": "t",
        "BEAKER_ADDR": "a",
        "DET_MASTER": "https://d",
        "MOSAICML_API_KEY": "k",
        "AIHC_TENSORBOARD_LOG_PATH": "/t",
    },
    "a notebook of Determined": {"DET_ALLOCATION_ID": "x", "DET_TASK_ID": "x"},
    "a job of OCI on one node": {"JOB_RUN_OCID": "x", "JOB_OCID": "y"},
    "a list of nodes of somebody's": {"NODE_LIST": "a:8", "INDEX": "0"},
    "a pod with leftovers of operators": {
        "PADDLE_TRAINER_ID": "0",
        "LWS_WORKER_INDEX": "0",
        "MASTER_ADDR": "p-master-0",
        "HOSTNAME": "p-master-0",
    },
    "a service of Vertex AI": {"CLOUD_ML_PROJECT_ID": "p"},
}


def test_every_platform_has_a_sample() -> None:
    rows = {case["platform"] for case in recorded_cases()}  # whose signs test_rows.py tries
    helpers.listed_in("SAMPLES in tests/adapters/test_signs.py", {*SAMPLES} | rows, {*PLATFORMS} - {"local"})


@helpers.for_each({name: (name,) for name in SAMPLES})
def test_the_sign_is_enough_and_all_of_it_is_needed(name: str) -> None:
    sign, rest, files = SAMPLES[name]
    assert name == platforms.choose(helpers.reader(sign, files)).NAME
    for missing in sign:
        left = {each: value for each, value in {**rest, **sign}.items() if each != missing}
        assert not PLATFORMS[name].detect(helpers.reader(left, files)), f"without {missing}"


SIGNED = [name for name in PLATFORMS if name in SAMPLES]
PAIRS = {f"{outer} and {inner}": (outer, inner) for outer, inner in itertools.combinations(SIGNED, 2)}


@helpers.for_each(PAIRS)
def test_of_two_places_at_once_the_outer_is_taken_or_the_start_is_refused(outer: str, inner: str) -> None:
    env = {name: text for place in (inner, outer) for name, text in {**SAMPLES[place].rest, **SAMPLES[place].sign}.items()}
    files = {**SAMPLES[inner].files, **SAMPLES[outer].files}
    assert outer == platforms.choose(helpers.reader(env, files)).NAME
    try:
        job = helpers.plan(env, files=dict(files), method="spawn").job
    except ConfigError as error:
        assert error.problems  # noqa: PT017
    else:
        assert (job.platform, len(job.nodes)) == (outer, 2)


@helpers.for_each({name: (env,) for name, env in LEFTOVERS.items()})
def test_what_a_place_leaves_elsewhere_is_no_job_of_it(env: dict[str, str]) -> None:
    found = helpers.plan(env)
    assert (found.job.platform, len(found.job.nodes), found.warnings) == ("local", 1, ())
