"""Real Slurm on two hosts: one ranklaunch on each, by srun."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from slurm_jobs import LONG_S, WAITS

from ranklaunch.adapters.platforms import slurm as slurm_platform
from testbench.hosts import wait_until
from testbench.jobs.ends import checked_verdict
from testbench.jobs.job import RANKLAUNCH
from testbench.places import ROOT, child
from testbench.slurm import SEARCH, Slurm

pytestmark = pytest.mark.launchers

HOOK = ROOT / "examples" / "hooks" / "slurm_comment.sh"
ONE_EACH = ("-N2", "--ntasks-per-node=1")

PLACE = "import os; print(os.environ['RANK'], 'of', os.environ['WORLD_SIZE'], flush=True)"
FAILS = """
import os, sys, time
print("ready", flush=True)
if os.environ["RANK"] == "2":
    sys.exit(3)
time.sleep(600)
"""


def program(slurm: Slurm, text: str) -> Path:
    path = slurm.folder / "train.py"
    path.write_text(text)
    return path


def srun(slurm: Slurm, *words: object, options: tuple[str, ...] = ONE_EACH, **env: str) -> subprocess.CompletedProcess[str]:
    with start(slurm, *words, options=options, **env) as job:
        out, err = job.communicate(timeout=LONG_S)
    return subprocess.CompletedProcess(job.args, job.returncode, out, err)


def start(slurm: Slurm, *words: object, options: tuple[str, ...] = ONE_EACH, **env: str) -> subprocess.Popen[str]:
    return slurm.popen("srun", *options, *RANKLAUNCH, "run", "--python", sys.executable, *words, env=env)


def verdicts(slurm: Slurm, job: str = "job_1.0") -> list[dict[str, Any]]:
    folder = slurm.folder / "ranklaunch-logs" / job
    return [checked_verdict(folder / f"node_{i}" / "attempt_1" / "verdict.json") for i in range(2)]


def ends_as(slurm: Slurm, state: str) -> None:
    """The first job; for a moment it is COMPLETING."""
    wait_until(lambda: slurm.state(1) not in ("RUNNING", "COMPLETING"), "the job's end", LONG_S)
    assert slurm.state(1) == state


def test_slots_are_the_gpus_that_slurm_gives(slurm: Slurm) -> None:
    words = ("--method", "torchrun", child("sums.py"), "SLURMD_NODENAME")
    done = srun(slurm, *words, options=(*ONE_EACH, "--gpus-per-node=2"))

    assert done.returncode == 0, done.stdout + done.stderr
    said = sorted(line.partition("place ")[2] for line in done.stdout.splitlines() if "place " in line)
    assert said == ["0 sum 4 at h0", "1 sum 4 at h0", "2 sum 4 at h1", "3 sum 4 at h1"]
    ends_as(slurm, "COMPLETED")
    assert [verdict["outcome"] for verdict in verdicts(slurm)] == ["succeeded"] * 2
    plan = json.loads((slurm.folder / "ranklaunch-logs/job_1.0/node_1/attempt_1/plan.json").read_text())
    assert (plan["platform"], plan["job"]["name"], plan["job"]["node_index"]) == ("slurm", f"{Path(sys.executable).name}-1.0", 1)


def test_a_failing_rank_gives_the_job_its_exit_code(slurm: Slurm) -> None:
    done = srun(slurm, "--method", "spawn", "--slots", "2", program(slurm, FAILS))

    assert done.returncode == 3, done.stdout + done.stderr
    ends_as(slurm, "FAILED")
    assert [(each["exit_code"], each["culprit"]["rank"], each["culprit"]["node"]) for each in verdicts(slurm)] == [(3, 2, 1)] * 2


def test_the_job_is_commented_and_started_again_without_the_host_to_blame(slurm: Slurm) -> None:
    fails = program(slurm, "import os, sys; print('/dev/nvme0: Input/output error'); sys.exit(os.environ['RANK'] == '1')")
    done = srun(slurm, "--method", "spawn", "--slots", "1", fails, RANKLAUNCH_ON_EVENT=f"sh {HOOK}")

    assert done.returncode == 1, done.stdout + done.stderr
    assert "Comment=verdict: rank 1 on node 1 (h1) exited with code 1" in slurm.run("scontrol", "show", "job", "1").stdout
    (host,) = {verdict["suspect_host"]["host"] for verdict in verdicts(slurm)}
    again = srun(slurm, "--method", "spawn", program(slurm, PLACE), options=("-N1", f"--exclude={host}"))
    assert again.returncode == 0, again.stdout + again.stderr
    assert "NodeList=h0" in slurm.run("scontrol", "show", "job", "2").stdout


def test_the_plan_on_a_login_node_is_that_of_the_step(slurm: Slurm) -> None:
    """But for names of hosts, and what follows from the job's number."""
    words = (*RANKLAUNCH, "plan", "--format", "json", "--method", "torchrun", "--python", sys.executable)
    one_of = ("sh", "-c", 'test "$SLURM_NODEID" = 1 || exec "$@"', "sh")
    inside = slurm.run("srun", *ONE_EACH, "--gpus-per-node=2", *one_of, *words, "train.py").stdout
    outside = slurm.run(*words, "--slurm", "nodes=2,gpus=2", "train.py").stdout
    step, login = (json.loads(text) for text in (inside, outside))

    def shape(plan: dict[str, Any]) -> object:
        job, argv = plan["job"], plan["processes"][0]["argv"]
        words = [word for word in argv if not word.startswith(("--master_", "--rdzv_id"))]
        return plan["platform"], plan["method"], job["world_size"], job["accelerator"], [n["slots"] for n in job["nodes"]], words

    assert shape(login) == shape(step)
    known = {value["name"] for value in step["values"]}
    assert {value["name"] for value in login["values"]} <= known | {"job_name"}


needs_mpirun = pytest.mark.skipif(
    not shutil.which("mpirun") or not shutil.which("sshd", path=SEARCH), reason="needs mpirun and OpenSSH's server"
)
MPI_RANK = 'echo "rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE on $(cat /proc/sys/kernel/hostname)"'


def of_mpi(slurm: Slurm) -> dict[str, str]:
    """Folders of the test's own: hosts of other tests have the same names, and Open MPI calls its folder after the host."""
    folder = slurm.folder / "mpi"
    folder.mkdir(exist_ok=True)
    names = ("RANKLAUNCH_RUN_DIR", "OMPI_MCA_orte_tmpdir_base", "OMPI_MCA_btl_vader_backing_directory")
    return dict.fromkeys(names, str(folder))


@needs_mpirun
@pytest.mark.parametrize("nodes", [pytest.param(1, marks=pytest.mark.table), 2])
def test_mpirun_starts_as_many_ranks_as_there_are_slots(slurm: Slurm, nodes: int) -> None:
    """Debian's Open MPI knows Slurm: by itself it would take one slot for each of srun's tasks, and reach the nodes by srun."""
    words = ("--method", "mpirun", "--slots", "2", "sh", "-c", MPI_RANK)
    done = srun(slurm, *words, options=(f"-N{nodes}", "--ntasks-per-node=1"), **of_mpi(slurm))

    assert done.returncode == 0, done.stdout + done.stderr
    said = sorted(line.partition("] ")[2] for line in done.stdout.splitlines() if line.startswith("[rank"))
    assert said == [f"rank {rank} of {2 * nodes} on h{rank // 2}" for rank in range(2 * nodes)]


@needs_mpirun
@pytest.mark.skipif(not importlib.util.find_spec("deepspeed"), reason="DeepSpeed is not installed")
def test_deepspeed_by_open_mpi(slurm: Slurm) -> None:
    words = ("--method", "deepspeed", "--slots", "2", "sh", "-c", MPI_RANK)
    done = srun(slurm, *words, RANKLAUNCH_DEEPSPEED_LAUNCHER="openmpi", DS_ACCELERATOR="cpu", **of_mpi(slurm))

    assert done.returncode == 0, done.stdout + done.stderr
    said = sorted(line.partition("] ")[2] for line in done.stdout.splitlines() if line.startswith("[deepspeed] rank"))
    assert said == [f"rank {rank} of 4 on h{rank // 2}" for rank in range(4)]


def cancel(slurm: Slurm, job: Any, logs: list[Path]) -> None:
    """Once each rank has written that it is ready. Slurm signals the ranks too, whose end may be seen before the request to stop is."""
    wait_until(lambda: job.poll() is not None or all(log.exists() and "ready" in log.read_text() for log in logs), "ranks", LONG_S)
    assert job.poll() is None, job.communicate()
    slurm.run("scancel", "1", check=True)
    said = "".join(job.communicate(timeout=LONG_S))
    assert [(each["outcome"], each["exit_code"]) for each in verdicts(slurm)] == [("stopped", 143)] * 2, said
    assert all("stopped by SIGTERM" in each["reason"] for each in verdicts(slurm))


def test_scancel_stops_every_rank(slurm: Slurm) -> None:
    with start(slurm, "--method", "spawn", "--slots", "2", program(slurm, WAITS)) as job:
        logs = [slurm.folder / f"ranklaunch-logs/job_1.0/node_{rank // 2}/attempt_1/rank_{rank}.log" for rank in range(4)]
        cancel(slurm, job, logs)

    ends_as(slurm, "CANCELLED")
    for host in slurm.hosts:
        wait_until(lambda host=host: not ranks_on(slurm, host), f"ranks on {host.name}", LONG_S)


SAVES = """
import os, signal, sys, time
def save(number, frame):
    open("saved." + os.environ["OMPI_COMM_WORLD_RANK"], "w").close()
    sys.exit()
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
time.sleep(600)
"""


@needs_mpirun
def test_scancel_stops_ranks_of_mpirun(slurm: Slurm) -> None:
    """Slurm signals mpirun and the servers of ssh too, which end before ranklaunch has heard of the stop."""
    with start(slurm, "--method", "mpirun", "--slots", "2", program(slurm, SAVES), **of_mpi(slurm)) as job:
        logs = [slurm.folder / f"ranklaunch-logs/job_1.0/node_0/attempt_1/rank_{rank}.log" for rank in range(4)]
        cancel(slurm, job, logs)

    assert sorted(path.name for path in slurm.folder.glob("saved.*")) == [f"saved.{rank}" for rank in range(4)]


ASKED = """
import os, signal, sys, time
def save(number, frame):
    open("asked." + os.environ["RANK"], "x").close()
    time.sleep(2)
    sys.exit()
signal.signal(signal.SIGUSR1, save)
print("ready", flush=True)
time.sleep(600)
"""


def page_script(slurm: Slurm, text: str, deadline_s: int) -> Path:
    """Return the script of docs/slurm.md, of two ranks on each node, with this deadline."""
    page = (ROOT / "docs" / "slurm.md").read_text(encoding="utf-8").partition("## Save before the time limit\n")[2]
    lines = page.partition("    #!/bin/bash\n")[2].partition("\n\n")[0]
    script = f"#!/bin/bash\n{textwrap.dedent(lines)}"
    run = [*RANKLAUNCH, "run", "--python", sys.executable, "--slots", "2"]
    changes = {
        "ranklaunch run": " ".join(run), "ranklaunch save": " ".join([*RANKLAUNCH, "save"]), "train.py": str(program(slurm, text)),
        "--deadline 290": f"--deadline {deadline_s}", " --time=12:00:00": "",
    }  # fmt: skip
    for old, new in changes.items():
        assert script.count(old) == 1, script
        script = script.replace(old, new)
    path = slurm.folder / "job.sh"
    path.write_text(f"{script}\n")
    return path


def warned(slurm: Slurm, script: Path) -> None:
    """Submit a script of two nodes, and warn it once its ranks are ready and can be asked."""
    slurm.run("sbatch", "--output=out", script, check=True)
    attempts = [slurm.folder / f"ranklaunch-logs/job_1.0/node_{i}/attempt_1" for i in range(2)]
    logs = [attempts[rank // 2] / f"rank_{rank}.log" for rank in range(4)]
    wait_until(lambda: all(log.exists() and "ready" in log.read_text() for log in logs), "ranks", LONG_S)
    wait_until(lambda: all([*a.glob("*.sock")] or "socket" in (a / "plan.json").read_text() for a in attempts), "sockets", LONG_S)
    slurm.run("scancel", "--batch", "--signal=USR1", "1", check=True)


def test_a_script_that_is_warned_has_all_ranks_asked_to_save(slurm: Slurm) -> None:
    """As docs/slurm.md has it. Here Slurm signals all processes of a step, of which torchrun would die."""
    warned(slurm, page_script(slurm, ASKED, 290))

    ends_as(slurm, "COMPLETED")
    assert sorted(path.name for path in slurm.folder.glob("asked.*")) == [f"asked.{rank}" for rank in range(4)]
    assert [verdict["outcome"] for verdict in verdicts(slurm)] == ["succeeded"] * 2


def test_ranks_that_train_on_after_the_warning_are_stopped_and_requeued(slurm: Slurm) -> None:
    """As docs/slurm.md has it, with a deadline of seconds."""
    warned(slurm, page_script(slurm, ASKED.replace("time.sleep(2)\n    sys.exit()", "pass"), 8))

    wait_until(lambda: "Restarts=1" in slurm.run("scontrol", "show", "job", 1).stdout, "the requeue", LONG_S)
    slurm.run("scancel", "1", check=True)
    assert sorted(path.name for path in slurm.folder.glob("asked.*")) == [f"asked.{rank}" for rank in range(4)]
    assert [(verdict["outcome"], verdict["exit_code"]) for verdict in verdicts(slurm)] == [("stopped", 143)] * 2


def ranks_on(slurm: Slurm, host: Any) -> list[int]:
    name = f"{slurm.folder}/train.py".encode()
    return [pid for pid in host.pids() if name in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_a_requeued_job_counts_its_starts(slurm: Slurm) -> None:
    """One script that is submitted, as people do; its second start is the second attempt."""
    script = slurm.folder / "job.sh"
    words = " ".join([*RANKLAUNCH, "run", "--python", sys.executable, "--method", "spawn", str(program(slurm, "print('trained')"))])
    again = '[ -n "$SLURM_RESTART_COUNT" ] || scontrol requeue $SLURM_JOB_ID'
    script.write_text(f"#!/bin/sh\nsrun {words}\ncode=$?\n{again}\nexit $code\n")
    slurm.run("sbatch", "--requeue", *ONE_EACH, script, check=True)
    folder = slurm.folder / "ranklaunch-logs"

    def ended() -> list[Path]:
        slurm.hurry(1)
        return sorted(folder.glob("job_1.*/node_*/attempt_2/verdict.json"))

    wait_until(lambda: slurm.state(1) == "PENDING" and "Restarts=1" in slurm.run("scontrol", "show", "job", 1).stdout, "requeue", LONG_S)
    wait_until(lambda: len(ended()) == 2, "the second attempt", LONG_S)
    ends_as(slurm, "COMPLETED")
    assert [checked_verdict(path)["outcome"] for path in ended()] == ["succeeded"] * 2
    assert len(list(folder.glob("job_1.*/node_*/attempt_1/verdict.json"))) == 2


TOGETHER = f"""
import os, runpy, time
from pathlib import Path
Path(os.environ["SLURM_JOB_ID"] + "." + os.environ["RANK"] + ".here").touch()
while len(list(Path().glob("*.here"))) < 4:
    time.sleep(0.1)
runpy.run_path({child("sums.py")!r}, run_name="__main__")
"""


def test_scripts_by_hand_with_the_same_first_node_do_not_meet(slurm: Slurm) -> None:
    """No port is given: each job has its own by its number. Each waits for the other's ranks to run."""
    words = " ".join([*RANKLAUNCH, "run", "--python", sys.executable, "--method", "spawn", str(program(slurm, TOGETHER))])
    script = slurm.folder / "job.sh"
    script.write_text(f"#!/bin/sh\nsrun {words}\n")
    for _ in range(2):
        slurm.run("sbatch", *ONE_EACH, script, check=True)
    wait_until(lambda: [slurm.state(job) for job in (1, 2)] == ["COMPLETED"] * 2, "both jobs", LONG_S)
    for job in (1, 2):
        assert (slurm.folder / f"slurm-{job}.out").read_text().count(" sum 2\n") == 2


def test_one_ranklaunch_for_each_rank_is_refused(slurm: Slurm) -> None:
    done = srun(slurm, program(slurm, WAITS), options=("-N2", "--ntasks-per-node=2"))

    assert done.returncode == 78
    assert "SLURM_STEP_TASKS_PER_NODE=2(x2)" in done.stderr
    assert "srun --ntasks=2 --ntasks-per-node=1 ranklaunch run ..., with --slots" in done.stderr


def test_the_remedy_helps_where_sbatch_was_told_of_many_tasks(slurm: Slurm) -> None:
    """srun takes --ntasks from sbatch, and with that leaves its own --ntasks-per-node aside."""
    words = " ".join([*RANKLAUNCH, "run", "--python", sys.executable, "--method", "spawn", "--slots", "2"])
    remedy = slurm_platform.ONE_EACH.format(2).replace("ranklaunch run ...", f"{words} {program(slurm, PLACE)}")
    script = slurm.folder / "job.sh"
    script.write_text(f"#!/bin/sh\n{remedy}\n")
    done = slurm.run("sbatch", "--wait", "--output=out", "-N2", "--ntasks=8", script)

    out = (slurm.folder / "out").read_text()
    assert done.returncode == 0, out
    assert sorted(line.partition("] ")[2] for line in out.splitlines() if line.startswith("[rank")) == [f"{rank} of 4" for rank in range(4)]


def test_a_script_on_several_nodes_without_srun_is_refused(slurm: Slurm) -> None:
    script = slurm.folder / "job.sh"
    words = " ".join([*RANKLAUNCH, "run", str(program(slurm, WAITS))])
    script.write_text(f"#!/bin/sh\n{words}\n")
    done = slurm.run("sbatch", "--wait", "--output=out", *ONE_EACH, script)

    assert done.returncode == 78, done
    assert "no SLURM_STEP_ID of srun: this is the job's script or shell" in (slurm.folder / "out").read_text()


@pytest.mark.parametrize(("asked", "ranks"), [("--mincpus=3", 1), ("--ntasks=3", 3)])
def test_a_script_without_srun_has_a_rank_for_each_task_but_not_for_each_processor(slurm: Slurm, asked: str, ranks: int) -> None:
    script = slurm.folder / "job.sh"
    words = " ".join([*RANKLAUNCH, "run", "--python", sys.executable, "--method", "spawn", str(program(slurm, PLACE))])
    script.write_text(f"#!/bin/sh\necho tasks $SLURM_TASKS_PER_NODE\n{words}\n")
    done = slurm.run("sbatch", "--wait", "--output=out", "-N1", asked, script)

    out = (slurm.folder / "out").read_text()
    assert done.returncode == 0, out
    assert "tasks 3\n" in out
    assert sorted(line for line in out.splitlines() if line.startswith("[rank")) == [f"[rank {i}] {i} of {ranks}" for i in range(ranks)]
    assert ("counts processors" in out) == (ranks == 1)


@pytest.mark.parametrize("nodes", [pytest.param(1, marks=pytest.mark.table), 2])
def test_the_shell_of_salloc_is_no_step_of_srun(slurm: Slurm, nodes: int) -> None:
    """It is a step, with one task on the first node, where the cluster is set up so."""
    shell = slurm.folder / "shell.sh"
    words = " ".join([*RANKLAUNCH, "run", "--python", sys.executable, "--method", "spawn", str(program(slurm, PLACE))])
    shell.write_text(f"#!/bin/sh\necho step $SLURM_STEP_ID on $SLURM_STEP_NODELIST\n{words}\n")
    shell.chmod(0o755)
    with slurm.popen("salloc", f"-N{nodes}", "--ntasks-per-node=2", env={"SHELL": str(shell)}) as job:
        out, err = job.communicate(timeout=LONG_S)

    assert "step 4294967290 on h0\n" in out
    if nodes == 1:
        assert job.returncode == 0, out + err
        assert sorted(line for line in out.splitlines() if line.startswith("[rank")) == ["[rank 0] 0 of 2", "[rank 1] 1 of 2"]
    else:
        assert job.returncode == 78, out + err
        assert "2 nodes, and no SLURM_STEP_ID of srun" in err


def test_the_components_of_a_heterogeneous_job(slurm: Slurm) -> None:
    """srun numbers the nodes by component, and lists them sorted: the first is h1 here."""
    script = slurm.folder / "job.sh"
    words = " ".join([*RANKLAUNCH, "run", "--python", sys.executable, "--method", "spawn", str(program(slurm, PLACE))])
    components = "#SBATCH -N1 -w h1 --gpus-per-node=1\n#SBATCH hetjob\n#SBATCH -N1 -w h0 --gpus-per-node=2\n"
    script.write_text(f"#!/bin/sh\n{components}srun --het-group=0,1 --ntasks-per-node=1 {words}\n")
    done = slurm.run("sbatch", "--wait", "--output=out", script)
    said = (slurm.folder / "out").read_text()
    assert done.returncode == 0, said
    assert sorted(line.partition("] ")[2] for line in said.splitlines() if " of 3" in line and line.startswith("[")) == [
        "0 of 3", "1 of 3", "2 of 3",
    ]  # fmt: skip
    plans = [json.loads((slurm.folder / f"ranklaunch-logs/job_1.0/node_{i}/attempt_1/plan.json").read_text()) for i in range(2)]
    assert [[node["host"] for node in plan["job"]["nodes"]] for plan in plans] == [["h1", "h0"]] * 2
    assert [[process["rank"] for process in plan["processes"]] for plan in plans] == [[0], [1, 2]]
