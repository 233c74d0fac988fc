"""JobSets of Kubernetes: pods with names SET-JOB-0-INDEX, in a Service with the name of the JobSet."""

from __future__ import annotations

from collections.abc import Iterator

from ranklaunch.adapters.platforms.shared import kubernetes
from ranklaunch.adapters.platforms.shared.base import Place
from ranklaunch.adapters.platforms.shared.facts import Fact
from ranklaunch.adapters.platforms.shared.kubernetes import HOSTNAME
from ranklaunch.env.reader import Reader
from ranklaunch.env.settings import HOSTS, NODES


class Jobset(Place):
    OWN = (HOSTNAME,)

    def detect(self, reader: Reader) -> bool:
        """Return True for a pod with an Indexed Job's index, whose name begins with the name of its Service or of the user's job."""
        return kubernetes.has_pod_index(reader) and kubernetes.replicated(reader) is not None

    def facts(self, reader: Reader) -> Iterator[Fact]:
        pod = kubernetes.replicated(reader)
        if not pod:
            return
        if pod.job == "launcher" and reader.files.exists(kubernetes.MPI_HOST_FILE) and not reader.is_set(HOSTS):
            reader.problem(
                f"{kubernetes.shown_name(reader)} is the launcher of a TrainJob with mlPolicy.mpi, whose nodes do not run ranklaunch: "
                "expected a runtime without mlPolicy.mpi, whose nodes all do, such as ranklaunch-gpu-mpi of the chart ranklaunch-runtimes"
            )
        kubernetes.refuse_other_jobs(reader, pod)
        yield from kubernetes.of_pods(reader, pod.set, f"{pod.set}-{pod.job}-0", pod.service, reader.get(NODES))
