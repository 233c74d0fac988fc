"""NVIDIA DGX Cloud Lepton: batch jobs, each worker of which is a node. Below it is an Indexed Job of Kubernetes.

Source: https://docs.nvidia.com/dgx-cloud/lepton/reference/environment-variables and
https://github.com/leptonai/scripts, lepton_env_to_pytorch.sh.
"""

from __future__ import annotations

from ranklaunch.adapters.platforms.shared import base, kubernetes, several
from ranklaunch.read import parse
from ranklaunch.read.job import Job, Program
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import ATTEMPT, HOSTS, make_job
from ranklaunch.read.settings import JOB_NAME as ANY_JOB_NAME
from ranklaunch.read.settings import NODE_INDEX as ANY_NODE_INDEX
from ranklaunch.read.settings import NODES as ANY_NODES
from ranklaunch.read.settings import SLOTS as ANY_SLOTS

NAME = "lepton"

NODES = ANY_NODES.also("LEPTON_JOB_TOTAL_WORKERS")
NODE_INDEX = ANY_NODE_INDEX.also("LEPTON_JOB_WORKER_INDEX")
POD_INDEX = Variable(
    "pod_index", ("JOB_COMPLETION_INDEX",), parse.count, 0, "index of the pod, which must be the worker's", "platform",
)  # fmt: skip
SLOTS = ANY_SLOTS.also("LEPTON_RESOURCE_ACCELERATOR_NUM")
JOB_NAME = ANY_JOB_NAME.also("LEPTON_JOB_NAME")
PREFIX = Variable(
    "service_prefix", ("LEPTON_JOB_SERVICE_PREFIX", "LEPTON_JOB_NAME"), parse.text, "", "what stands before a worker's index in its name",
    "platform",
)  # fmt: skip
SUBDOMAIN = Variable("subdomain", ("LEPTON_SUBDOMAIN",), parse.text, "", "what stands behind it: PREFIX-0.SUBDOMAIN", "platform")
FAILURES = Variable("failures", ("LEPTON_JOB_FAILURE_COUNT",), parse.count, 0, "failures before; the attempt is one more", "platform")

VARIABLES: tuple[Variable[object], ...] = (NODES, NODE_INDEX, POD_INDEX, SLOTS, JOB_NAME, PREFIX, SUBDOMAIN, FAILURES)

program = base.no_program
failure_file = base.no_failure_file
log_dir = base.log_dir


def detect(reader: Reader) -> bool:
    return several.has(reader, *JOB_NAME.names[1:], *NODE_INDEX.names[1:])


def attempt(reader: Reader) -> int:
    if reader.given(ATTEMPT):
        return reader.get(ATTEMPT)
    number = reader.get(FAILURES) + 1
    reader.ledger.note(ATTEMPT.value, str(number), f"{FAILURES.names[0]} + 1" if reader.given(FAILURES) else "default")
    return number


def read(reader: Reader, program: Program) -> Job:
    nodes = _count(reader)
    own = several.index(reader, NODE_INDEX, nodes, several.told(reader, POD_INDEX))
    return make_job(
        reader,
        program,
        platform=NAME,
        name=reader.get(JOB_NAME) or NAME,
        attempt=attempt(reader),
        hosts=_hosts(reader, nodes),
        slots=several.slots(reader, SLOTS, nodes),
        node_index=own,
        accelerator=("gpu", SLOTS.names[-1]),
    )


def _count(reader: Reader) -> int:
    return kubernetes.count(reader, NODES, f"set {ANY_NODES.names[0]} to the number of workers")


def _hosts(reader: Reader, nodes: int) -> tuple[str, ...]:
    prefix, subdomain = reader.get(PREFIX).strip(), reader.get(SUBDOMAIN).strip()
    made = kubernetes.pods(prefix, nodes, subdomain) if prefix and subdomain and not reader.given(HOSTS) and nodes > 1 else ()
    if made:
        kubernetes.checked(reader, made[0], f"{reader.source(PREFIX)}, {SUBDOMAIN.names[0]}")
    return several.hosts(reader, nodes, made, f"{reader.source(PREFIX)}, {SUBDOMAIN.names[0]}")
