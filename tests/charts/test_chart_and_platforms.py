"""What a rendered pod and its engine put into a container's environment, ranklaunch reads as the job that the values describe."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import helpers
import pytest
from chart_schemas import pod_templates
from chart_tools import CASES, Object, case_id, load, parse, rendered

WITH_RUNTIME = "trainjob-auto-gpu"  # its pod is the runtime's
HERE = [path for path in CASES if case_id(path) != WITH_RUNTIME]
PLATFORM = {
    "volcano": "volcano", "jobset": "jobset", "job": "indexed_job", "trainjob": "kubeflow_trainer", "mpijob": "mpijob",
    "acjob": "ascend_operator",
}  # fmt: skip

Container = tuple[Object, Mapping[str, str]]


def containers(values: Object, objects: list[Object]) -> Iterator[Container]:
    """(the pod's template, what the engine adds to its environment), in node order."""
    engine, nodes = values["engine"], values["nodes"]
    templates = list(pod_templates([each for each in objects if each["kind"] != "Pod"]))
    for index in range(nodes + launchers_alone(values)):
        yield templates[-1 if index else 0 if engine in {"mpijob", "acjob"} else -1], ENGINES[engine](values, index)


def launchers_alone(values: Object) -> int:
    return int(values["engine"] == "mpijob" and not values.get("mpi", {}).get("launcherAsWorker", True))


def volcano(values: Object, index: int) -> Mapping[str, str]:
    hosts = {task: [f"demo-{task}-{i}.demo" for i in range(count)] for task, count in tasks(values).items() if count}
    lists = {f"VC_{task.upper()}_HOSTS": ",".join(names) for task, names in hosts.items()}
    counts = {f"VC_{task.upper()}_NUM": str(len(names)) for task, names in hosts.items()}
    return {"VC_TASK_INDEX": str(index), "VK_TASK_INDEX": str(index), "HOSTNAME": f"demo-worker-{index}", **lists, **counts}


def tasks(values: Object) -> dict[str, int]:
    return {"worker": values["nodes"], "ps": values.get("tf", {}).get("ps", 0)}


def indexed(form: str) -> Callable[[Object, int], Mapping[str, str]]:
    return lambda values, index: {"JOB_COMPLETION_INDEX": str(index), "HOSTNAME": form.format(index)}


def mpijob(values: Object, index: int) -> Mapping[str, str]:
    if index:
        return {"K_MPI_JOB_ROLE": "worker", "HOSTNAME": f"demo-worker-{index - 1}"}
    return {"K_MPI_JOB_ROLE": "launcher", "HOSTNAME": "demo-launcher", "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile"}


def host_file(values: Object) -> str:
    """Of an MPIJob, on its launcher alone."""
    names = [f"demo-worker-{i}" for i in range(values["nodes"] - 1 + launchers_alone(values))]
    names = names if launchers_alone(values) else ["demo-launcher", *names]
    slots = values.get("mpi", {}).get("slots") or values["devicesPerNode"]
    return "".join(f"{name}.demo.team.svc slots={slots}\n" for name in names)


def acjob(values: Object, index: int) -> Mapping[str, str]:
    devices = values["devicesPerNode"]
    place = {"RANK": str(index), "WORLD_SIZE": str(values["nodes"] * devices), "LOCAL_WORLD_SIZE": str(devices), "LOCAL_RANK": "0,1"}
    return {**place, "MASTER_ADDR": "10.0.0.9", "MASTER_PORT": "2222", "MINDX_TASK_ID": "1", "HOSTNAME": f"demo-worker-{index}"}


ENGINES = {
    "volcano": volcano, "jobset": indexed("demo-worker-0-{}"), "job": indexed("demo-{}"), "trainjob": indexed("demo-node-0-{}"),
    "mpijob": mpijob, "acjob": acjob,
}  # fmt: skip


def environment(template: Object, added: Mapping[str, str]) -> dict[str, str]:
    """As kubelet makes it, with every count that a fieldRef reads at 0."""
    variables = template["spec"]["containers"][0]["env"]
    told = {each["name"]: each["value"].replace("$$", "$") if "value" in each else "0" for each in variables}
    return {"PATH": "/usr/bin:/bin", **told, **added}


@pytest.mark.parametrize("values", HERE, ids=case_id)
def test_ranklaunch_reads_the_job_of_the_values(values: Path, tmp_path: Path) -> None:
    found = load(values)
    objects = parse(rendered("4", values))
    for index, (template, added) in enumerate(containers(found, objects)):
        root = tmp_path / str(index)
        (root / "etc" / "mpi").mkdir(parents=True)
        pod = added["HOSTNAME"]
        (root / "etc" / "hosts").write_text(f"10.0.0.2 {pod}.demo.team.svc.cluster.local {pod}\n", encoding="utf-8")
        if found["engine"] == "mpijob" and not index:
            (root / "etc" / "mpi" / "hostfile").write_text(host_file(found), encoding="utf-8")
        words = template["spec"]["containers"][0]["args"]
        result = helpers.call("plan", "--format", "json", "--root", str(root), "--", *words, env=environment(template, added))
        assert result.code == 0, result.err
        job = json.loads(result.out)["job"]
        slots = found.get("mpi", {}).get("slots") or found["devicesPerNode"] or 1
        assert json.loads(result.out)["platform"] == PLATFORM[found["engine"]]
        assert job["name"] == "demo"
        assert job["attempt"] == 1
        assert job["node_index"] == index
        assert job["world_size"] == found["nodes"] * slots
        assert job["accelerator"] == found.get("device", {}).get("kind", "gpu")
