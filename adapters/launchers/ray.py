"""Method ray: a Ray cluster over all nodes, and the program once on node 0, after all nodes have joined.

Each node runs `ray start --block` as a service; node 0 has the head. Node 0 chooses a free port and a token at each start, and the other
nodes get both from the muster. The other nodes run only Ray; they end with node 0, and with the same exit code. Sources:
`ray start --help` and ray.scripts.symmetric_run of Ray 2.60.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

from ranklaunch.adapters.launchers.shared import base, open_mpi, ssh, variables
from ranklaunch.adapters.launchers.shared.base import Launcher
from ranklaunch.adapters.launchers.shared.variables import misleading
from ranklaunch.env import parse
from ranklaunch.env.job import SHELLS, Job, Node
from ranklaunch.env.reader import Reader, Variable
from ranklaunch.env.settings import WAIT_S
from ranklaunch.files import join, own_program
from ranklaunch.plan.model import PROGRAM, File, Plan, Process
from ranklaunch.render.templates import Templates
from ranklaunch.verdict import folders

NAME = "ray"
OFFER_STEP, NODE_PROGRAM, DRIVER_PROGRAM = (own_program(f"ray_{name}.py") for name in ("offer", "node", "driver"))
OFFER = "ray port and token"
PORT, TOKEN = "ray_port", "ray_token"  # file names in the private folder

MASTER_PORT = replace(base.MASTER_PORT, default=0, parse=parse.port_or_0, default_text="a free port, which node 0 chooses")  # of the head
CPUS = Variable(
    "ray_cpus", ("RANKLAUNCH_RAY_CPUS",), parse.count, 0, "CPUs of each node that Ray may give to tasks and actors; 0: the CPUs of "
    "the container, or without devices the slots",
)  # fmt: skip
EXTRA = base.further_options(("RANKLAUNCH_EXTRA_RAY_PARAMS",), "further options of ray start, on every node")

RESOURCES = {"npu": "NPU"}  # names for `--resources`; GPUs have their own option


def plan(job: Job, reader: Reader, templates: Templates) -> Plan:
    job = base.need_hosts(job, reader, NAME)
    slots = tuple(node.slots for node in job.nodes)
    devices = job.node.slots
    job = replace(job, nodes=tuple(_follower(node) for node in job.nodes))
    cluster = _Cluster(job, reader, templates, devices)
    return base.planned(
        job, reader, NAME, () if job.node_index else (cluster.driver(),), services=(cluster.node(),), prepare=(cluster.step(),),
        files=cluster.files(), offers={OFFER: cluster.offer}, private=cluster.folder, followers=len(job.nodes) - 1, runs=PROGRAM,
        slots=slots, by_address=job.has_peers,
        waits=ssh.waits(job, reader, for_sshd=False) if job.has_peers else (),
    )  # fmt: skip


def _follower(node: Node) -> Node:
    """Return the node with one slot on node 0, for the program, and none on other nodes."""
    return node._replace(slots=int(node.index == 0), first_rank=int(node.index > 0))


def _host(job: Job, reader: Reader, node: Node) -> str:
    """Return the address under which other nodes reach a node."""
    return reader.address_of(node.host) if job.has_peers else "127.0.0.1"


class _Cluster:
    """Rendezvous of the nodes of a Ray cluster. Every node has node 0's port and token in two files of its private folder."""

    def __init__(self, job: Job, reader: Reader, templates: Templates, devices: int) -> None:
        self._job, self._reader, self._templates, self._devices = job, reader, templates, devices
        self.folder = ssh.private_folder(job, reader)
        self.offer = join(self.folder, "ray_offer")
        self._address = f"{base.address(_host(job, reader, job.nodes[0]))}:{{port}}"
        self._env = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": join(self.folder, TOKEN)}

    def step(self) -> Process:
        """Return the step that chooses a free port and a token. The cluster uses those of node 0."""
        job, user_port = self._job, str(self._reader.get(MASTER_PORT))
        argv = (job.python, OFFER_STEP, self.offer, user_port, *((self.folder,) if job.node_index == 0 else ()))
        env = base.common_env(job, self._reader)
        return Process("ray offer", argv, log=base.in_attempt(job, "ray_offer.log"), env=env, tag="[ray offer] ")

    def files(self) -> tuple[File, ...]:
        """Return node 0's port and token as files for another node; empty files before the muster. () on node 0."""
        if self._job.node_index == 0:
            return ()
        port, _, token = self._reader.shared(0, OFFER).partition(" ")
        return File(join(self.folder, PORT), port), File(join(self.folder, TOKEN), token)

    def node(self) -> Process:
        """Return the service that runs the Ray of this node."""
        job, reader = self._job, self._reader
        on_devices = job.accelerator != "cpu"
        cpus = reader.get(CPUS) or (open_mpi.cpus(reader.files) if on_devices else self._devices) or 0
        named = RESOURCES.get(job.accelerator)
        address = self._address if job.node_index else ""
        argv = self._templates.command(
            "ray/start.j2", job=job, address=address, host=_host(job, reader, job.node), cpus=cpus,
            gpus=self._devices if job.accelerator == "gpu" else 0, resources=json.dumps({named: self._devices}) if named else "",
            folder=_folder(job, reader), extra=reader.get(EXTRA),
        )  # fmt: skip
        logs = folders.node(base.in_attempt(job, NAME), job.node_index)
        words = (job.python, NODE_PROGRAM, join(self.folder, PORT), logs, f"{reader.get(WAIT_S):g}", address)
        return Process(
            name=NAME, argv=self._templates.changed(argv, (*words, *argv)), log=base.in_attempt(job, "ray.log"), tag="[ray] ",
            behaviour=RayNode.NAME, quiet=True,
            env={**base.common_env(job, reader), **variables.environment(job, reader), **self._env}, unset=misleading(reader.env),
            outlasts=True,
        )  # fmt: skip

    def driver(self) -> Process:
        """Return the process of the program, which starts when all nodes have joined."""
        job, reader = self._job, self._reader
        argv = self._templates.command("ray/command.j2", job=job)
        words = (job.python, DRIVER_PROGRAM, join(self.folder, PORT), self._address, str(len(job.nodes)), f"{reader.get(WAIT_S):g}", "--")
        argv = self._templates.changed(argv, (*words, *argv))
        env = {**self._env, **self._numbers()}
        return replace(base.rank_process(job, reader, self._templates, argv, 0, env, 0), name="program")

    def _numbers(self) -> dict[str, str]:
        """Return variables with the numbers of nodes and devices for a shell script, except those that the user has set."""
        program, devices = self._job.program, str(self._devices)
        if not (program.is_shell or program.name in SHELLS):
            return {}
        numbers = {"NNODES": str(len(self._job.nodes)), "NPROC_PER_NODE": devices, "GPUS_PER_NODE": devices}
        return {name: value for name, value in numbers.items() if not self._reader.env.get(name)}


def _folder(job: Job, reader: Reader) -> str:
    """Return Ray's temporary folder: a short path, since it contains sockets, and a new one for each start of each job on a host."""
    start_id = f"{job.name} {job.log_dir} {job.attempt} {job.restart} {job.node_index}"
    name = f"rl-ray-{hashlib.sha256(start_id.encode(errors='surrogateescape')).hexdigest()[:10]}"
    return join(reader.absolute(reader.get(variables.RUN_DIR)), name)


class Ray(Launcher):
    """Launcher of the program on node 0, whose tasks run in Ray's workers."""

    NAME = NAME
    VARIABLES = (MASTER_PORT, CPUS, EXTRA, variables.RUN_DIR)
    plan = staticmethod(plan)


class RayNode(Launcher):
    """Ray service of one node. It ends its own processes after SIGTERM."""

    NAME = "ray.node"
