"""Whatever the environment and the command line hold: a plan, or one message that says what to mend. Never a trace, never a guess."""

from __future__ import annotations

import json
from collections.abc import Mapping

import helpers
import pytest
from golden_cases import recorded
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recorded_places import recorded_cases

from ranklaunch import ranktable
from ranklaunch.adapters.launchers import LAUNCHERS
from ranklaunch.adapters.platforms import PLATFORMS
from ranklaunch.cli import options as command_line
from ranklaunch.errors import EXIT_CODES, ConfigError
from ranklaunch.plan import planning

VARIABLES = planning.every_variable()
NAMES = sorted({name for variable in VARIABLES for name in variable.names})
OPTIONS = sorted({variable.option for variable in VARIABLES if variable.option} - {"--all-nodes"})
SCRUBBED = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "PET_NNODES", "PET_", "MS_ROLE", "RANK_TABLE_FILE", "OMPI_COMM_WORLD_RANK"]
OTHERS = ["PATH", "HOME", "PYTHONUNBUFFERED", "VC_LEARNER_HOSTS", "S3_SECRET_ACCESS_KEY"]

NUMBERS = ["0", "1", "2", "3", "4", "8", "16", "-1", "01", " 2 ", "2.5", "1e9", "1_0", "99999999999", "٣", "0x10", "nan", "inf"]
LISTS = [
    "2,3",
    "1,2,3",
    "1,,2",
    ",",
    "a,b",
    "a,b,c",
    "a,b,c,d",
    "h-0.j,h-1.j",
    "[a,b]",
    "['a', 'b']",
    "10.0.0.1,10.0.0.2",
    "::1,::2",
    "a b,c",
]
WORDS = [
    "true",
    "false",
    "on",
    "maybe",
    *LAUNCHERS,
    "torchrnu",
    *PLATFORMS,
    "npu",
    "cpu",
    "json",
    "sh",
    "text",
    "worker",
    "learner",
    "ps",
]
PATHS = ["/", "/no/such", "relative", "./x", "/user/config", "/tmp/x.json", "/dev/null", "..", "/opt/venv/bin/python", "/bin:/usr/bin", ":"]
PARAMETERS = ["--rdzv_conf=timeout=7200", "--nnodes=3 --tee 3", "'open", "--rdzv-backend=c10d", "-", "--", "--standalone --max_restarts=9"]
TAGS = ["{{ rank }}", "{{ x }}", "{{", "{% if %}", "{{ rank.__class__ }}", "{{ [1] }}", "{{ 1 / 0 }}", "{# #}"]
POD_NAMES = ["j-worker-0", "j-worker-1", "j-worker-99", "no number", "ma-job-1", "a/b", "../../x"]
HOSTILE = [value for name, value in helpers.HOSTILE.items() if "100 kB" not in name]

texts = st.one_of(
    *(st.sampled_from(pool) for pool in (NUMBERS, LISTS, WORDS, PATHS, PARAMETERS, TAGS, POD_NAMES, HOSTILE)),
    st.text(max_size=8),
)
methods = st.sampled_from([*LAUNCHERS, ""])
of_modelarts = st.integers(1, 4).flatmap(
    lambda nodes: st.builds(
        helpers.modelarts,
        st.just(nodes),
        st.integers(0, 3),
        st.integers(0, nodes - 1),
        MA_RUN_METHOD=methods,
        ROUTE_PLAN=st.sampled_from(["", "true"]),
    )
)
of_nothing = st.integers(1, 4).flatmap(
    lambda nodes: st.builds(
        helpers.local, st.just(nodes), st.sampled_from(["1", "2", "0"]), st.integers(0, nodes - 1), RANKLAUNCH_METHOD=methods
    )
)
mixed = st.fixed_dictionaries(
    {},
    optional={
        "MA_NUM_HOSTS": st.sampled_from(["1", "2", "3"]),
        "MA_NUM_GPUS": st.sampled_from(["0", "1", "8"]),
        "VC_TASK_INDEX": st.sampled_from(["0", "1", "2"]),
        "VC_WORKER_HOSTS": st.sampled_from(["a", "a,b", "a,b,c"]),
        "RANK_TABLE_FILE": st.just("/user/config"),
        "RANKLAUNCH_NODES": st.sampled_from(["1", "2", "3"]),
        "RANKLAUNCH_NODE": st.sampled_from(["0", "1"]),
        "RANKLAUNCH_HOSTS": st.sampled_from(["a", "a,b", "a,b,c"]),
        "RANKLAUNCH_SLOTS": st.sampled_from(["1", "2", "1,2", "2,1,3"]),
    },
)
INDEX = st.sampled_from(["0", "1", "2"])
of_kubernetes = st.fixed_dictionaries(
    {},
    optional={
        "HOSTNAME": st.sampled_from(["j-node-0-1", "j-worker-0", "j-master-0", "j-launcher", "j"]),
        "JOB_COMPLETION_INDEX": INDEX,
        "VC_TASK_INDEX": INDEX,
        "VC_WORKER_HOSTS": st.sampled_from(["j-worker-0.j", "j-worker-0.j,j-worker-1.j"]),
        "VC_WORKER_NUM": INDEX,
        "VC_MASTER_HOSTS": st.just("j-master-0.j"),
        "VC_PS_HOSTS": st.just("j-ps-0.j"),
        "MASTER_ADDR": st.sampled_from(["j-master-0.j", "10.0.0.1"]),
        "MASTER_PORT": st.sampled_from(["2222", "18889"]),
        "RANK": INDEX,
        "WORLD_SIZE": st.sampled_from(["2", "3", "16"]),
        "LOCAL_WORLD_SIZE": st.sampled_from(["0", "1", "8"]),
        "MINDX_TASK_ID": st.just("6f1f"),
        "NPU_POD": st.sampled_from(["true", "false"]),
        "PET_NNODES": st.sampled_from(["1", "2", "1:4"]),
        "PET_NODE_RANK": INDEX,
        "PET_MASTER_ADDR": st.sampled_from(["j-node-0-0.j", "m"]),
        "PET_NPROC_PER_NODE": st.sampled_from(["auto", "2"]),
        "K_MPI_JOB_ROLE": st.sampled_from(["launcher", "worker"]),
        "RANKLAUNCH_LAUNCHER_AS_WORKER": st.sampled_from(["true", "false"]),
        "RANKLAUNCH_NODES": st.sampled_from(["1", "2", "3"]),
        "RANKLAUNCH_SLOTS": st.sampled_from(["1", "2", "1,2", "0"]),
        "RANKLAUNCH_METHOD": methods,
    },
)
ADDRESSES = st.sampled_from(["10.0.0.5", "10.0.0.5,10.0.0.6", "10.0.0.5\n10.0.0.6", "\n10.0.0.6", "\n", "10.0.0.5 10.0.0.6 10.0.0.7"])
COUNT, FIRST = st.sampled_from(["1", "2", "3", "16"]), st.sampled_from(["10.0.0.5", "10.0.0.6", "m", "127.0.0.1"])
# What each of them is recognised by is there; the rest may be, and may contradict it.
of_clouds = st.one_of(
    *(
        st.fixed_dictionaries(sign, optional={**rest, "RANKLAUNCH_METHOD": methods, "RANKLAUNCH_NODES": COUNT, "RANKLAUNCH_NODE": INDEX})
        for sign, rest in (
            (
                {"SKYPILOT_NODE_RANK": INDEX, "SKYPILOT_NODE_IPS": ADDRESSES},
                {"SKYPILOT_NUM_NODES": COUNT, "SKYPILOT_NUM_GPUS_PER_NODE": COUNT, "SKYPILOT_TASK_ID": st.just("sky-1")},
            ),
            (
                {"DSTACK_NODE_RANK": INDEX, "DSTACK_NODES_NUM": COUNT},
                {"DSTACK_NODES_IPS": ADDRESSES, "DSTACK_MASTER_NODE_IP": FIRST, "DSTACK_GPUS_PER_NODE": COUNT, "DSTACK_GPUS_NUM": COUNT},
            ),
            (
                {"AWS_BATCH_JOB_NODE_INDEX": INDEX, "AWS_BATCH_JOB_NUM_NODES": COUNT},
                {
                    "AWS_BATCH_JOB_MAIN_NODE_INDEX": INDEX, "AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS": FIRST,
                    "AWS_BATCH_JOB_ID": st.sampled_from(["7f", "7f#1", "#1"]), "MF_PARALLEL_NUM_NODES": COUNT,
                    "MF_PARALLEL_NODE_INDEX": INDEX, "MF_PARALLEL_MAIN_IP": FIRST, "JOBSET_RESTART_ATTEMPT": INDEX,
                },
            ),
            (
                {"AZUREML_RUN_ID": st.just("x")},
                {
                    "AZUREML_NODE_COUNT": COUNT, "AZ_BATCH_HOST_LIST": ADDRESSES, "AZUREML_CR_NODE_RANK": INDEX, "NODE_RANK": INDEX,
                    "MASTER_ADDR": FIRST, "RANK": INDEX, "WORLD_SIZE": COUNT, "LOCAL_RANK": INDEX, "OMPI_COMM_WORLD_RANK": INDEX,
                    "OMPI_COMM_WORLD_SIZE": COUNT, "OMPI_COMM_WORLD_LOCAL_SIZE": COUNT, "VK_TASK_INDEX": INDEX,
                    "AZUREML_CR_DISTRIBUTED_CONFIG": st.sampled_from(
                        ['{"rank": "VK_TASK_INDEX", "host_list": ["10.0.0.5", "10.0.0.6"]}', '{"host_list": 3}', "[]", '{"rank": ["x"]}']
                    ),
                },
            ),
            (
                {"NODE_ADDR": FIRST, "PRIMARY_ADDR": FIRST, "NUM_TRAINERS": COUNT, "NUM_NODES": COUNT},
                {"NODE_RANK": INDEX, "MASTER_ADDR": FIRST, "WORLD_SIZE": COUNT},
            ),
            (
                {"LEPTON_JOB_NAME": st.sampled_from(["ft", "f t"]), "LEPTON_JOB_WORKER_INDEX": INDEX},
                {"LEPTON_JOB_TOTAL_WORKERS": COUNT, "LEPTON_SUBDOMAIN": st.sampled_from(["s", "s."]), "JOB_COMPLETION_INDEX": INDEX},
            ),
            (
                {"BATCH_TASK_INDEX": INDEX, "BATCH_HOSTS_FILE": st.sampled_from(["/no/such", "x", "/dev/null"])},
                {"BATCH_TASK_COUNT": COUNT},
            ),
        )
    )
)  # fmt: skip
BATCH_HOSTS = st.sampled_from(["a 1 b 16", "a 16 b 16", "a 16", "a", "batch1 1 a 4 b 4", "a 1 ?"])
of_batch_systems = st.one_of(
    *(
        st.fixed_dictionaries(
            sign,
            optional={**rest, "RANKLAUNCH_METHOD": methods, "RANKLAUNCH_NODES": COUNT, "RANKLAUNCH_HOSTS": st.sampled_from(["a", "a,b"])},
        )
        for sign, rest in (
            (
                {"LSB_JOBID": st.just("7"), "LSB_MCPU_HOSTS": BATCH_HOSTS},
                {
                    "LSB_HOSTS": st.sampled_from(["a a b", "a c"]), "LSF_PM_TASKID": COUNT, "HOSTNAME": st.sampled_from(["a", "b.x", "c"]),
                    "JSM_NAMESPACE_SIZE": COUNT, "JSM_NAMESPACE_RANK": INDEX, "JSM_NAMESPACE_LOCAL_RANK": INDEX,
                    "LSB_RESTART": st.just("Y"),
                    "LSB_JOBINDEX": INDEX, "LSB_JOBNAME": st.sampled_from(["n[1]", "a b"]), "LSB_DJOB_HOSTFILE": st.just("/no/such"),
                },
            ),
            (
                {"PBS_JOBID": st.sampled_from(["7.s", "7[1].s", "../x"]), "PBS_ENVIRONMENT": st.just("PBS_BATCH")},
                {
                    "PBS_NODENUM": INDEX, "PBS_TASKNUM": st.sampled_from(["1", "00000002"]), "PBS_NODEFILE": st.just("/no/such"),
                    "PALS_NODEID": INDEX, "PALS_LOCAL_SIZE": COUNT, "PBS_GPUFILE": st.just("/no/such"),
                    "CUDA_VISIBLE_DEVICES": st.just("0,1"), "RANKLAUNCH_HOSTS_FROM": st.just("/no/such"),
                },
            ),
            (
                {"FLUX_JOB_ID": st.sampled_from(["f7", "\u01927"]), "FLUX_TASK_RANK": INDEX},
                {
                    "FLUX_JOB_NNODES": COUNT, "FLUX_JOB_SIZE": COUNT, "FLUX_TASK_LOCAL_ID": INDEX, "PMI_RANK": INDEX,
                    "RANKLAUNCH_HOSTS_COMMAND": st.just("false"), "RANKLAUNCH_MASTER_ADDR": st.just("a"),
                },
            ),
        )
    )
)  # fmt: skip
# Of every place, with some of what it sets missing: such as what a shell of another user's has.
of_places = st.sampled_from(
    [*(case.env for case in recorded() if case.folder in PLATFORMS), *(case["env"] for case in recorded_cases())]
).flatmap(
    lambda env: st.sets(st.sampled_from(sorted(env)), max_size=2).map(lambda gone: {name: env[name] for name in env if name not in gone})
)
plausible = st.one_of(of_modelarts, of_nothing, mixed, of_kubernetes, of_clouds, of_batch_systems, of_places, of_places)
wild = st.dictionaries(st.sampled_from([*NAMES, *SCRUBBED, *OTHERS]), texts, max_size=4)
environments = st.builds(lambda one, other: {**one, **other}, plausible, wild)
formats = st.sampled_from([(), ("--format=json",), ("--format=json", "--all-nodes"), ("--format=sh",)])
options = st.lists(st.tuples(st.sampled_from(OPTIONS), texts), max_size=2)
programs = st.one_of(
    st.builds(
        lambda program, args: [program, *args], st.sampled_from(["train.py", "run.sh", "trainer", "./x y"]), st.lists(texts, max_size=3)
    ),
    st.lists(st.one_of(st.sampled_from(["-m", "--", ""]), texts), max_size=3),
)


# The same examples on every run: a failure is one for everybody.
alike = settings(derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.processes  # users' templates are rendered in one
@settings(alike, max_examples=150)
@given(env=environments, form=formats, given_options=options, joined=st.booleans(), program=programs)
def test_a_plan_or_a_message(
    env: Mapping[str, str], form: tuple[str, ...], given_options: list[tuple[str, str]], joined: bool, program: list[str]
) -> None:
    words = [word for option in given_options for word in (["=".join(option)] if joined else option)]

    found = helpers.call("plan", *form, *words, *program, env=env)

    assert found.code in EXIT_CODES.keys() - {70}, found.err
    if found.code == 0:
        assert found.err == ""
        check_plans(found.out)
        return
    assert found.out == ""
    assert found.err
    assert all(line.startswith("ranklaunch: ") for line in found.err.splitlines())
    if found.code == 78:
        assert any(name in found.err for name in [*NAMES, *OPTIONS, *OTHERS, "template ", "/user/config", "/etc/volcano"]), found.err


def check_plans(out: str) -> None:
    """Where it was JSON: no rank twice, every process with a command."""
    if not out.startswith(("{", "[")):
        return
    data = json.loads(out)
    for plan in data if isinstance(data, list) else [data]:
        ranks = [process["rank"] for process in plan["processes"] if process["rank"] is not None]
        assert len(set(ranks)) == len(ranks)
        assert plan["processes"] or plan["services"]
        assert all(process["argv"] and process["argv"][0] for process in plan["processes"])


KEYS = [
    "status", "version", "group_list", "instance_list", "instance_count", "pod_name", "server_id", "server_list", "server_count",
    "device", "devices", "device_id", "device_ip", "rank_id", "other",
]  # fmt: skip
keys = st.sampled_from(KEYS)
numbers = st.one_of(st.integers(-2, 9), st.floats())
scalars = st.one_of(st.none(), st.booleans(), numbers, st.sampled_from(["completed", "1.0", "0", "a", "", "\0"]), st.text(max_size=5))
jsons = st.recursive(scalars, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(keys, inner, max_size=5)), max_leaves=20)
tables = st.fixed_dictionaries(
    {"status": st.sampled_from(["completed", "initializing"])},
    optional={
        "version": st.sampled_from(["1.0", "0.1", "1.2", 1.0, None]),
        "group_list": jsons,
        "server_list": jsons,
        "server_count": scalars,
    },
)


@settings(alike, max_examples=100)
@given(data=st.one_of(tables, jsons), cut=st.integers(0, 3))
def test_a_rank_table_or_a_message(data: object, cut: int) -> None:
    text = json.dumps(data)
    try:
        table = ranktable.parse(text[: len(text) - cut], "/x")
    except (ranktable.NotReadyError, ConfigError) as error:
        message = str(error)
    else:
        message = "read"
        assert ranktable.parse(ranktable.to_version_1(table), "/x").size == table.size
    assert message


@settings(alike, max_examples=100)
@given(st.one_of(st.text(alphabet=st.sampled_from('AB=# \n\r\0{}":,\\u00e9é'), max_size=30), st.text(max_size=30)))
def test_an_environment_file_or_a_message(text: str) -> None:
    try:
        env = command_line.parse_env(text, "--env-file x")
    except ConfigError as error:
        message = str(error)
    else:
        message = "--env-file x"
        assert all(isinstance(name, str) and isinstance(value, str) for name, value in env.items())
    assert message.startswith("--env-file x")
