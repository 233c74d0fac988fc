"""Indexed Jobs of Kubernetes: names of the pods, if a Service resolves them."""

from __future__ import annotations

from collections.abc import Iterator

from ranklaunch.adapters.platforms.shared import kubernetes
from ranklaunch.adapters.platforms.shared.base import Place
from ranklaunch.adapters.platforms.shared.facts import Fact
from ranklaunch.adapters.platforms.shared.kubernetes import HOSTNAME
from ranklaunch.env.reader import Reader
from ranklaunch.env.settings import NODES


class IndexedJob(Place):
    OWN = (HOSTNAME,)

    def facts(self, reader: Reader) -> Iterator[Fact]:
        pod, service = kubernetes.own_name(reader), kubernetes.service(reader)
        yield from kubernetes.of_pods(
            reader, kubernetes.job_of_pod(reader), kubernetes.stem(pod) if service else "", service, reader.get(NODES)
        )
