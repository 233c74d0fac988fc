"""TorchX on Volcano: each replica of a role is a task of one pod, and the task's variable has the pod's host."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ranklaunch.adapters.platforms.shared import kubernetes
from ranklaunch.adapters.platforms.shared.base import Place
from ranklaunch.adapters.platforms.shared.facts import Fact, of_hosts
from ranklaunch.adapters.platforms.shared.kubernetes import HOSTNAME
from ranklaunch.env.reader import Reader
from ranklaunch.env.settings import NODE_INDEX

_POD = r"(?P<job_and_role>.+)-(?P<replica>[0-9]{1,7})-0"


class Torchx(Place):
    OWN = (HOSTNAME,)

    def facts(self, reader: Reader) -> Iterator[Fact]:
        pod = re.fullmatch(_POD, kubernetes.own_name(reader))
        if not pod:
            return
        roles: dict[str, dict[int, str]] = {}
        for name, value in reader.env.items():
            match = re.fullmatch(r"VC_(.+)_([0-9]{1,7})_HOSTS", name)
            if match:
                roles.setdefault(match[1], {})[int(match[2])] = value.strip()
        job_and_role = re.sub("[^A-Z0-9]", "_", pod["job_and_role"].upper())
        role = max((role for role in roles if f"_{job_and_role}".endswith(f"_{role}")), key=len, default="")
        hosts = roles.get(role, {})
        yield from of_hosts(f"hosts of the tasks {role}", [hosts[replica] for replica in sorted(hosts)])
        yield NODE_INDEX, f"the replica's number in {HOSTNAME.name}", pod["replica"]
