"""The oldest PyTorchJobs. Their master has localhost as MASTER_ADDR; the workers know the master by its pod's name."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ranklaunch.adapters.platforms.shared import kubernetes
from ranklaunch.adapters.platforms.shared.base import Place
from ranklaunch.adapters.platforms.shared.facts import FIRST, Fact
from ranklaunch.env.reader import Reader


class Pytorchjob(Place):
    def facts(self, reader: Reader) -> Iterator[Fact]:
        address, pod = reader.env.get("MASTER_ADDR", "").strip(), kubernetes.own_name(reader)
        if re.fullmatch(r"localhost|127\..*|::1", address) and "-master-" in pod:
            yield FIRST, "HOSTNAME", f"{kubernetes.stem(pod)}-0"
        elif address:
            yield FIRST, "MASTER_ADDR", address
