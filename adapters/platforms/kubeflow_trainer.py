"""Kubeflow Trainer's TrainJob: read from the variables of its torch policy, else from its pods' names and the Indexed Job's index.

A TrainJob is a JobSet whose replicated Job has the name node. PyTorchJobs of the earlier training operator set the same variables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ranklaunch.adapters.platforms.shared import kubernetes
from ranklaunch.adapters.platforms.shared.base import Place
from ranklaunch.adapters.platforms.shared.facts import Fact, copied
from ranklaunch.adapters.platforms.shared.kubernetes import HOSTNAME
from ranklaunch.env import parse
from ranklaunch.env.reader import Reader, Variable, platform_text
from ranklaunch.env.settings import NODES, SLOTS, devices
from ranklaunch.errors import number

MASTER_PORT = Variable(
    "master_port", ("PET_MASTER_PORT",), parse.port, 29500, "port of the rendezvous on node 0, if the method's own is not set",
    "platform",
)  # fmt: skip
COUNTS = platform_text(
    "trainer_counts",
    ("PET_NNODES", "PET_NPROC_PER_NODE", "WORLD_SIZE"),
    "number of nodes (N or N:N); ranks of a node, or a word for its devices; with N:N the number of all ranks, which must agree",
)

_SIGNS = ("PET_NNODES", "PET_NODE_RANK", "PET_MASTER_ADDR")
# Address of node 0. TrainJob: POD.SERVICE. PyTorchJob: a Service's name, the master's or, without a master, the first worker's.
_MASTER = r"(?P<job>.+)-(?:node-0-0\.(?P<service>[^.]+)|(?:master|worker)-0)(?:\..*)?"


class KubeflowTrainer(Place):
    OWN = (COUNTS, MASTER_PORT, HOSTNAME)

    def detect(self, reader: Reader) -> bool:
        """Return True if all variables of the torch policy are set, or in a TrainJob's pod.

        One of the variables is not enough: an image or a user may set it for torchrun. torchtune's runtime sets no master, and needs none
        for one node.
        """
        nodes, rank, master = (reader.env.get(name, "").strip() for name in _SIGNS)
        indexed, pod = kubernetes.has_pod_index(reader), kubernetes.replicated(reader)
        by_policy = bool(nodes and rank) and (bool(master) or (indexed and nodes == "1"))
        return by_policy or (indexed and pod is not None and (pod.job, pod.job_index) == ("node", 0))

    def facts(self, reader: Reader) -> Iterator[Fact]:
        env = {name: value.strip() for name, value in reader.env.items()}
        least, colon, most = env.get("PET_NNODES", "").partition(":")
        if colon and least != most and not reader.is_set(NODES):
            elastic = "an elastic job, whose number of nodes may change"
            reader.problem(f"PET_NNODES={env['PET_NNODES']!r}: {elastic}: set {NODES.name} to the number of its pods")
        elif least:
            yield NODES, "PET_NNODES", least
        nodes = reader.get(NODES) if reader.is_set(NODES) else number(least) or 1
        if nodes > 1:
            yield from copied(reader, MASTER_PORT, MASTER_PORT)
        yield from _slots(reader, env.get("PET_NPROC_PER_NODE", ""))
        if colon and least == most and env.get("MASTER_ADDR") == env.get("PET_MASTER_ADDR"):
            _refuse_other_count(reader, nodes, env)
        yield from _pods(reader, env.get("PET_MASTER_ADDR", ""), nodes)


def _slots(reader: Reader, slots: str) -> Iterator[Fact]:
    if slots.lower() not in ("", "auto", "gpu", "cpu"):
        yield SLOTS, "PET_NPROC_PER_NODE", slots
        _warn_of_processors(reader, slots)


def _pods(reader: Reader, master: str, nodes: int) -> Iterator[Fact]:
    """Yield the names of the pods from node 0's address, the same on every node; else from this pod's own name."""
    match, pod = re.fullmatch(_MASTER, master), kubernetes.replicated(reader)
    if match:
        stem = f"{match['job']}-node-0" if match["service"] else ""
        return kubernetes.of_pods(reader, match["job"], stem, match["service"], nodes, "PET_MASTER_ADDR")
    if pod:
        return kubernetes.of_pods(reader, pod.set, f"{pod.set}-{pod.job}-0", pod.service, nodes)
    return kubernetes.of_pods(reader, master, "", "", nodes, "PET_MASTER_ADDR")


def _warn_of_processors(reader: Reader, slots: str) -> None:
    """Warn if the slots are not the number of devices. The trainer counts GPUs only; on NPUs it sets the number of processors."""
    here = devices(reader)
    if here and not reader.is_set(SLOTS) and number(slots) != here:
        described = f"PET_NPROC_PER_NODE={slots}, but this container has {here} devices"
        reader.warn(f"{described}: set the TrainJob's numProcPerNode or RANKLAUNCH_SLOTS")


def _refuse_other_count(reader: Reader, nodes: int, env: Mapping[str, str]) -> None:
    """Refuse N:N that differs from the number of pods: in an elastic job without limits of its own the operator counts the workers, but not
    the master, which is a node too."""
    ranks, slots = number(env.get("WORLD_SIZE", "")) or 0, number(env.get("PET_NPROC_PER_NODE", "")) or 1
    if ranks and ranks // slots != nodes:
        by_ranks = f"by WORLD_SIZE={ranks} the job has {ranks // slots} pods"
        reader.problem(f"PET_NNODES has {nodes} nodes, but {by_ranks}: set {NODES.name} to their number")
