"""Break one line at a time of the launchers, platforms and templates, in a copy of the tree, and print which test notices.

    .venv/bin/python tools/mutations.py [--golden] [WORD...]

A WORD chooses the mutations whose file name or reason contains it. Golden files run first, then the adapter's own tests, then all tests of
adapters: each stage only for mutations that the stages before missed.
The exit code is 1 if a mutation survives. Shortened tests must still catch all mutations: run this before and after.

--golden runs only the golden files. It lists for each mutation all cases that notice it, then the needed cases: without one of these, a
mutation would be missed. Any other case may be deleted if no reader needs it as an example.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ("tests/test_golden.py", "tests/specs/test_spec_golden.py", "-k", "as_stored")
AT_ONCE = 2
OPTIONS = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not training and not launchers and not specs")


class Mutation(NamedTuple):
    """A change of one line. place: file below adapters/ (any deeper folder too) or templates/. old: text that occurs exactly once there."""

    place: str
    old: str
    new: str
    why: str


# fmt: off
MUTATIONS = tuple(Mutation(*row) for row in (
    ("launchers/__init__.py", "if job.world_size > 1:", "if job.world_size > 2:", "two ranks are no longer torchrun's"),
    ("launchers/base.py", 'tag=f"[{name}] ",', 'tag="",', "lines of a launcher have no tag"),
    ("launchers/base.py", "host or job.master, reader", "host or job.node.host, reader", "each node waits for itself"),
    ("launchers/base.py", 'if folder and search.split(":")[0] != folder:', "if False:", "the user's interpreter is not first on PATH"),
    ("launchers/base.py", '**variables.environment(job, reader), **env},', "**env},", "ranks go without HCCL's settings"),
    ("launchers/torchrun.py", ', "PET_REDIRECTS": "3"', "", "torchrun writes no files of ranks"),
    ("launchers/torchrun.py", "return 330 if self.planned.job.has_peers else 30", "return 30", "torchrun is ended too soon"),
    ("launchers/torchrun.py", "first_rank=rank * job.node.slots", "first_rank=rank", "planned nodes have other ranks"),
    ("launchers/torchrun.py", "if (rank == 0) != (job.node_index == master):", "if False:", "a contradiction of planned ranks passes"),
    ("launchers/torchrun.py", "if value >= count and reader.is_set", "if value > count and reader.is_set", "a rank too high passes"),
    ("launchers/torchrun.py", '[word.replace("$", "$$") for word in program.args]', "list(program.args)", "torch takes dollars for its"),
    ("launchers/torchrun.py", "    ENDS_RANKS = ()\n    HAS_REPORTED", "    HAS_REPORTED", "torchrun's own restarts are ended"),
    ("launchers/spawn.py", "rank = job.node.first_rank + slot", "rank = slot", "ranks begin at 0 on each node"),
    ("launchers/spawn.py", '"LOCAL_WORLD_SIZE": str(local_size),', "", "a variable of ranks is missing"),
    ("launchers/spawn.py", '"GROUP_RANK": str(job.node_index),', '"GROUP_RANK": "0",', "each node is the first of elastic programs"),
    ("launchers/base.py", "return job.master if job.has_peers", "return job.node.host if job.has_peers", "each is the master"),
    ("launchers/base.py", "rank=job.node_index,", "rank=0,", "all nodes are rank 0"),
    ("launchers/base.py", "return {}, misleading(reader.env), False", "return {}, (), False", "what misleads is inherited"),
    ("launchers/pytorch.py", "str(len(job.nodes))", "str(job.world_size)", "--world_size counts ranks, not nodes"),
    ("launchers/pytorch.py", "default=6666", "default=6667", "another port by default"),
    ("launchers/jax.py", '"JAX_PROCESS_ID": str(rank),', '"JAX_PROCESS_ID": "0",', "all are process 0"),
    ("launchers/jax.py", 'if devices else str(slot)', 'if devices else "0"', "all processes of a node have one device"),
    ("launchers/ray.py", "followers=len(job.nodes) - 1,", "followers=len(job.nodes),", "node 0 follows itself"),
    ("launchers/ray.py", 'address = self._address if job.node_index else ""', 'address = ""', "each node is a head"),
    ("launchers/mpirun.py", "followers=len(job.nodes) - 1,", "followers=len(job.nodes),", "node 0 follows itself"),
    ("launchers/mpirun.py", '"HOROVOD_MPI_THREADS_DISABLE": "1",', "", "a variable of ranks is missing"),
    ("launchers/mpirun.py", "[max(1, n) if node.slots else 0 for", "[max(1, n) for", "a launcher alone gets a rank"),
    ("launchers/mpirun.py", '{"4": "vader", "5": "sm"}', '{"4": "sm", "5": "vader"}', "each version has the other's name"),
    ("launchers/open_mpi.py", 'failed_with(-int(killed["sig"])', 'failed_with(int(killed["sig"])', "a signal is no exit code"),
    ("launchers/base.py", "128 + signal if signal", "signal if signal", "a signal is no exit code"),
    ("launchers/msrun.py", "master_port=reader.get(MASTER_PORT),", "master_port=reader.get(MASTER_PORT) + 1,", "a port off by one"),
    ("launchers/msrun.py", "if index != job.node_index:", "if False:", "a table in another order passes"),
    ("launchers/msrun.py", "folder if job.attempt == 1 else", "folder if job.attempt else", "an attempt empties old logs"),
    ("launchers/msrun.py", "if len({node.slots for node in job.nodes if node.slots}) > 1:", "if False:", "uneven slots pass"),
    ("launchers/msrun.py", "by_address=job.has_peers)", "by_address=False)", "the scheduler is named, not numbered"),
    ("launchers/deepspeed.py", "    DEPTH = 2\n", "    DEPTH = 1\n", "signals go to launch.py in place of ranks"),
    ("launchers/from_node_0.py", "    if twice:", "    if False:", "two nodes on one host pass"),
    ("launchers/deepspeed.py", "files=(hostfile,) if job.has_peers else (),", "files=(),", "the hostfile is not written"),
    ("launchers/deepspeed_remote.py", ', "DS_ENV_FILE": forwarded.path', "", "ranks of other nodes get no variables"),
    ("launchers/deepspeed_remote.py", "and value == value.strip() and", "and", "a value loses its spaces on the way"),
    ("launchers/deepspeed_remote.py", '"SLURM_KILL_BAD_EXIT": "1"', '"SLURM_KILL_BAD_EXIT": "0"', "ranks wait for one that has failed"),
    ("launchers/filters.py", "slots=len(slots), first_rank=first", "slots=node.slots, first_rank=first", "a chosen node starts all"),
    ("launchers/deepspeed/options.py", "(home, job.folder)", "(job.folder, home)", "the home folder's variables win"),
    ("launchers/deepspeed/options.py", "least > nodes", "least < 0", "agents wait for nodes that the job has not"),
    ("platforms/hostfile.py", "if match[1] in earlier:", "if False:", "a host that stands there twice passes"),
    ("launchers/tensorflow.py", "followers=sum(node.task == PS for node in job.nodes),", "followers=0,", "ps are waited for"),
    ("launchers/tensorflow.py", "port=node.port or port", "port=port", "the platform's own ports do not count"),
    ("launchers/tensorflow.py", '"--job_name": job.node.task,', "", "an argument is missing"),
    ("launchers/ranktable.py", '"RANK_SIZE": str(job.world_size),', '"RANK_SIZE": str(job.node.slots),', "the size is the node's"),
    ("launchers/ranktable.py", '"ASCEND_DEVICE_ID": str(local_rank),', '"ASCEND_DEVICE_ID": str(rank),', "a device of another node"),
    ("launchers/ranktable.py", "files=way.files or (file,)", "files=way.files", "the table is not written"),
    ("launchers/megatron.py", " and not AS_WRITTEN.values(options, flag)]", "]", "a flag is given twice"),
    ("launchers/megatron.py", "parse.positive(texts[-1])", "parse.positive(texts[0])", "the first of two values counts"),
    ("launchers/accelerate.py", '"num_processes": job.world_size,', '"num_processes": job.node.slots,', "only one node's ranks"),
    ("launchers/accelerate.py", '"machine_rank": job.node_index,', '"machine_rank": 0,', "every node is the first"),
    ("launchers/variables.py", 'f"={name}"', "name", "HCCL takes a beginning for an interface"),
    ("launchers/variables.py", "MASTER_ADDR MASTER_PORT", "MASTER_ADDR MASTER_PORTS", "an inherited port stays"),
    ("launchers/from_node_0.py", "|HCCL_IF_IP|", "|", "node 0's own address goes to all"),
    ("launchers/route.py", "LEAST_NODES = 3", "LEAST_NODES = 2", "two nodes are planned"),
    ("launchers/ssh.py", "max(200, 2 * len(job.nodes))", "200", "sshd turns away the ranks of a large job"),
    ("launchers/ssh.py", "len(public) < 2 or public[1] in authorized", "True", "a key that lets nobody in is taken"),
    ("launchers/rank_table.py", "if len(table.servers) < nodes:", "if False:", "a table of fewer entries passes"),
    ("platforms/__init__.py", "signed and (begins or not row.begins)", "signed and begins", "a platform is not asked"),
    ("platforms/platforms.json", ', "AWS_BATCH_JOB_NUM_NODES"], "node_index"', '], "node_index"', "two numbers of nodes pass"),
    ("platforms/platforms.json", '"kills_after_s": 20.0', '"kills_after_s": 30.0', "ranks are killed while they save"),
    ("platforms/base.py", "reader.get(self.restarts) + 1", "reader.get(self.restarts)", "attempts begin at 0"),
    ("platforms/base.py", "if len(hosts) != nodes:", "if False:", "more names than nodes pass"),
    ("platforms/base.py", "if _differ(hosts[0], first):", "if False:", "two masters pass"),
    ("platforms/base.py", "own_host == first if node_index else _differ(own_host, first)", "False", "a leader elsewhere passes"),
    ("platforms/base.py", "not in (sum(slots), sum(max(1, each) for each in slots))", "== -1", "counts that contradict pass"),
    ("platforms/base.py", "if any(number not in each for number in slots):", "if False:", "devices that contradict pass"),
    ("platforms/base.py", "if ranks % slots:", "if False:", "ranks that are no whole nodes pass"),
    ("platforms/base.py", "if self.row.starts_once and not started:", "if False:", "a script of a batch system trains alone"),
    ("platforms/base.py", "if number >= nodes:", "if number > nodes:", "an index too high passes"),
    ("platforms/base.py", "not allowed and all(", "all(", "the user cannot allow what a row refuses"),
    ("platforms/base.py", "0, len(hosts) - 1)) if", "0, len(hosts))) if", "a rank that is too high passes"),
    ("platforms/base.py", "str(int(text) + int(plus[1]))", "text", "worker 0 is the master"),
    ("platforms/facts.py", "if all(hosts) else (FIRST,", "if True else (FIRST,", "a missing address is a host"),
    ("platforms/user_rows.py", "(*row.patterns, *row.node_index_like)", "()", "a wrong pattern of a user's row passes"),
    ("platforms/base.py", "else last + 1", "else max(last, 1)", "an attempt overwrites the one before"),
    ("platforms/base.py", "last and not _ended(reader, newest, last)", "last", "an attempt that others have ended is taken up"),
    ("platforms/modelarts.py", '.also("MA_NUM_HOSTS", "VC_WORKER_NUM",', '.also("VC_WORKER_NUM", "MA_NUM_HOSTS",', "precedence is swapped"),
    ("platforms/modelarts.py", '"DLS_TASK_INDEX", agree=True)', '"DLS_TASK_INDEX")', "indices may contradict each other"),
    ("platforms/modelarts.py", "+ reader.get(SCHEDULED) - 1", "+ reader.get(SCHEDULED)", "the first attempt is 2"),
    ("platforms/modelarts.py", "and not reader.by_user(LOG_DIR)", "", "nodes share a folder of logs"),
    ("platforms/modelarts.py", '"modelarts-job", reader.get(', '"ma-job", reader.get(', "the job has not its public name"),
    ("launchers/user_options.py", "if option.startswith(name)]", "if option == name]", "an abbreviation of torchrun's passes"),
    ("launchers/user_options.py", "            elif known:\n", "            elif False:\n", "another program among further options passes"),
    ("launchers/torchrun.py", 'in ("", "static")', '!= "c10d"', "ranks by etcd have the tags of others"),
    ("launchers/torchrun.py", "if job.place and _VIRTUAL in", "if False and _VIRTUAL in", "all ranks are bound to the first's cores"),
    ("launchers/base.py", " or which(name, search, reader.files)", "", "a launcher's module is started where its script is"),
    ("launchers/mpirun.py", ", *meeting}", "}", "ranks of mpirun do not know where to meet"),
    ("launchers/base.py", "first.host if first.index else", "first.host if False else", "ranks meet where no rank is"),
    ("launchers/variables.py", "<= 7200:", "< 7200:", "the longest wait is warned of"),
    ("launchers/merge.py", '_ONE_PROCESS = ("NO", "MULTI_CPU", False)', '_ONE_PROCESS = ("NO", False)', "each node trains alone"),
    ("platforms/modelarts.py", 'f"{job}-{task}-{i}.{job}"', 'f"{job}-{task}-{i + 1}.{job}"', "names of hosts off by one"),
    ("platforms/kubernetes.py", "int(match[2] or 1)", "int(match[2] or 2)", "a host without a number has two slots"),
    ("platforms/kubeflow_trainer.py", "if ranks and ranks // slots != nodes:", "if False:", "a count that contradicts passes"),
    ("platforms/sagemaker.py", "hosts.sort()", "hosts.reverse()", "nodes disagree on their order"),
    ("platforms/sagemaker.py", 'name of this host", agree=True', 'name of this host"', "two own names pass"),
    ("platforms/mpijob.py", 'int(pod["index"]) + 1', 'int(pod["index"])', "worker 0 is the launcher"),
    ("platforms/mpijob.py", "if reader.get(AS_WORKER) or not job.has_peers:", "if True:", "the launcher gets ranks"),
    ("platforms/slurm.py", "for host in components if", "for host in sorted(components) if", "components in another order"),
    ("platforms/slurm.py", '"SLURM_STEP_NUM_NODES", "SLURM_NNODES",', '"SLURM_NNODES", "SLURM_STEP_NUM_NODES",', "the job, not the step"),
    ("platforms/batch.py", 'return "" if reader.is_set(LOG_DIR) else', 'return "" if True else', "jobs share a folder of logs"),
    ("platforms/hostlist.py", '{number:0{width}}', '{number}', "node001 becomes node1"),
    ("platforms/vertexai.py", "len(pools[0]) if kind == _POOLS[1] else 0", "0", "two containers are node 0"),
    ("platforms/volcano.py", "if len(hosts) > 1 else ()", "if False else ()", "the plugin's port does not count"),
    ("platforms/volcano.py", "return [leader, own]", "return [own, leader]", "the leader is not node 0"),
    ("platforms/jobset.py", "kubernetes.refuse_other_jobs(reader, pod)", "pass", "several Jobs of a set pass"),
    ("platforms/indexed_job.py", "kubernetes.stem(pod) if service", "pod if service", "hosts that nobody has"),
    ("platforms/leaderworkerset.py", "-{number}{leader", "-{number - 1}{leader", "workers' names are off by one"),
    ("platforms/oci.py", "if set(hosts) == set(range(nodes)):", "if hosts:", "nodes that have not come are misread"),
    ("platforms/local.py", "if hosts and len(hosts) != nodes:", "if False:", "more names than nodes pass"),
    ("platforms/aws_batch.py", "index + 1 if index < main else index", "index", "two nodes are the main's neighbour"),
    ("platforms/azureml.py", "if total > nodes or here:", "if False:", "each process of a node starts all its ranks"),
    ("platforms/ascend_operator.py", "if processes % here and", "if False and", "uneven nodes pass"),
    ("platforms/ascend_operator.py", "(listed or names != PYTORCH)", "True", "a rank of a launcher is a node"),
    ("platforms/platforms.json", '"!OMPI_COMM_WORLD_LOCAL_SIZE=1"', '"!OMPI_COMM_WORLD_LOCAL_SIZE"', "several of mpirun on a node pass"),
    ("platforms/lsf.py", 'LAUNCHES}", tuple(rest)', 'LAUNCHES}", tuple(listed)', "the host that launches on Summit is a node"),
    ("platforms/pbs.py", 'in ("", "1")', 'in ("",)', "a script of PBS trains alone"),
    ("platforms/batch.py", "tasks.here >= of_host", "False", "a rank that its host does not have"),
    ("launchers/spawn.py", '"LOCAL_RANK": str(local_rank),', '"LOCAL_RANK": "0",', "each rank of a host is its first"),
    ("platforms/unrecognised.py", "0 <= index.number <", "0 < index.number <", "node 0 of several trains alone"),
    ("platforms/unrecognised.py", "names if _number(_text(reader, name)) > 1", "()", "several under an mpirun train alone"),
    ("platforms/batch.py", "set(tasks.counts) != {1}", "False", "each of several on a node starts all its ranks"),
    ("templates/program.j2", "{{ job.python }} -u {{", "{{ job.python }} {{", "Python keeps its output back"),
    ("templates/torchrun/command.j2", " --rdzv_backend=static", "", "a flag is missing"),
    ("templates/torchrun/command.j2", "--node_rank={{ node_rank }}", "--node_rank={{ job.node_index }}", "planned ranks do not count"),
    ("templates/msrun/command.j2", " --join=True", "", "msrun does not wait for its ranks"),
    ("templates/mpirun/hostfile.j2", " slots={{ slots | hostfile }}", "", "every host has one slot"),
    ("templates/mpirun/command.j2", "  -bind-to none -map-by slot\n", "", "ranks share a core"),
    ("templates/deepspeed/command.j2", "{% if not elastic %}--no_local_rank{% endif %}", "", "a program gets --local_rank"),
    ("templates/deepspeed/command.j2", "  --hostfile /dev/null\n", "", "the image's hostfile counts"),
    ("templates/accelerate/command.j2", "--machine_rank {{ job.node_index }}", "--machine_rank 0", "every node is the first"),
    ("templates/ssh/sshd_config.j2", "StrictModes no\n", "", "sshd refuses keys in a shared folder"),
    ("templates/ssh/ssh_config.j2", "StrictHostKeyChecking yes", "StrictHostKeyChecking no", "any host is trusted"),
    ("templates/ssh/known_hosts.j2", "{% if port == 22 %}", "{% if port == 23 %}", "OpenSSH does not find the key"),
    ("templates/jobs/pod.yaml.j2", "restartPolicy: Never", "restartPolicy: OnFailure", "one pod starts anew, alone"),
    ("templates/jobs/volcano.yaml.j2", "(spec.restart.max_restarts + 1)", "spec.restart.max_restarts", "one restart fewer"),
    ("templates/jobs/indexed.yaml.j2", "completionMode: Indexed\n", "", "pods have no index"),
    ("templates/jobs/slurm.sh.j2", " --kill-on-bad-exit=0", "", "srun ends the others in its own way"),
    ("templates/jobs/slurm.sh.j2", "SLURM_JOB_ID % {{", "0 * {{", "all jobs have the same ports"),
    ("templates/jobs/slurm.sh.j2", "    {{ word | sh }}", "    {{ word | line }}", "a variable is not quoted"),
    ("templates/jobs/slurm.sh.j2", " {{ word | sh }}{% endfor %}", " {{ word | line }}{% endfor %}", "a word is not quoted"),
    ("templates/jobs/slurm.sh.j2", "{{ part | sh }}", "{{ part | line }}", "a word of the save is not quoted"),
    ("templates/jobs/slurm.sh.j2", "${excluded:+$excluded,}", "", "hosts that were left out before are forgotten"),
    ("templates/jobs/slurm.sh.j2", "${reason:0:200}", "$reason", "a comment has any length"),
    ("templates/jobs/slurm.sh.j2", "job=${SLURM_ARRAY_JOB_ID:+", "job=${SLURM_NO_JOB_ID:+", "a task requeues its whole array"),
    ("templates/jobs/pbs.sh.j2", " || code=$?", " || true", "a failed job of PBS is a success"),
    ("templates/jobs/lsf.sh.j2", ' -z "$hosts"', "", "LSF starts one ranklaunch for each slot"),
    ("templates/jobs/mpijob.yaml.j2", "slotsPerWorker: {{ ([slots, 1] | max) | yaml }}", "slotsPerWorker: 1", "one rank on each worker"),
))
# fmt: on

_TREES: list[Path] = []  # the copy that this worker process breaks


def main(words: list[str]) -> int:
    golden = "--golden" in words
    words = [word for word in words if word != "--golden"]
    chosen = [each for each in MUTATIONS if not words or any(word in f"{each.place} {each.why}" for word in words)]
    survivors = 0
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ProcessPoolExecutor(AT_ONCE, None, _copy, (folder,)) as pool:
        found = []
        for each, caught in zip(chosen, pool.map(_golden_cases if golden else _first_test, chosen)):
            survivors += not caught
            found.append(caught)
            how = f"  ({' '.join(caught)})" if caught else ""
            print(f"{'caught  ' if caught else 'SURVIVED'}  {each.place}: {each.why}{how}", flush=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} caught")
    if golden:
        print("needed: " + " ".join(sorted({cases[0] for cases in found if len(cases) == 1})))
    return min(1, survivors)


def _copy(folder: str) -> None:
    """Copy the tree, without hidden files at its top, for this worker process."""
    copy = Path(tempfile.mkdtemp(dir=folder))
    for path in ROOT.iterdir():
        if path.is_dir() and not path.name.startswith("."):
            shutil.copytree(path, copy / path.name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        elif path.is_file() and not path.name.startswith("."):
            shutil.copy(path, copy)
    _TREES[:] = [copy]


@contextlib.contextmanager
def _broken(mutation: Mutation) -> Iterator[None]:
    path = path_of(_TREES[0], mutation.place)
    text = path.read_text(encoding="utf-8")
    if text.count(mutation.old) != 1:
        msg = f"{path.relative_to(_TREES[0])} has {mutation.old!r} {text.count(mutation.old)} times: expected once"
        raise SystemExit(msg)
    path.write_text(text.replace(mutation.old, mutation.new), encoding="utf-8")
    try:
        yield
    finally:
        path.write_text(text, encoding="utf-8")


def _first_test(mutation: Mutation) -> list[str]:
    """Return the tests that fail on the mutant in the first stage with a failure; [] for a survivor."""
    with _broken(mutation):
        return next(filter(None, (_failures(stage, "-x") for stage in _stages(mutation.place))), [])


def _golden_cases(mutation: Mutation) -> list[str]:
    """Return the golden cases that fail on the mutant, each as ADAPTER/CASE."""
    with _broken(mutation):
        return [re.sub(r".*\[(.*)\]", r"\1", test) for test in _failures(GOLDEN)]


def _stages(place: str) -> Iterator[tuple[str, ...]]:
    yield GOLDEN
    name = place.split("/")[1].partition(".")[0]
    yield from ((own,) for own in [f"tests/adapters/test_{name}.py"] if (_TREES[0] / own).exists())
    yield ("tests/adapters", "tests/test_golden.py", "tests/render/test_render.py")


def path_of(tree: Path, place: str) -> Path:
    """Return the file of a mutation in a tree. Of several files of that name, take the one nearest to the top."""
    if place.startswith("templates/"):
        return tree / place
    kind, name = place.split("/", 1)
    return min((tree / "adapters" / kind).rglob(name), key=lambda path: len(path.parts))


def _failures(tests: tuple[str, ...], *options: str) -> list[str]:
    # No bytecode: if a file changes twice within a second, Python would use the bytecode of the first change.
    env = {**os.environ, "PYTHONPATH": str(_TREES[0] / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", *options, *OPTIONS, *tests]
    done = subprocess.run(command, cwd=_TREES[0], env=env, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        msg = f"pytest ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        raise SystemExit(msg)
    found = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
    return found or (["a test"] if done.returncode else [])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
