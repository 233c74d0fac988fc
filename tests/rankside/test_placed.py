"""Which processes write a rank record, which process they name as the top of their rank, and which launcher as the one that placed it.

A *head* is the first Python below a rank. Heads with one top are one rank: a shell that starts two Pythons is the top of both. A rank is
*placed* where the parent of its top is ranklaunch or another launcher.
"""

from __future__ import annotations

import importlib.util
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from rankside import running
from rankside.expected import Record, of_kind, read_records, wrong_files

from testbench.jobs.job import Starter

pytestmark = pytest.mark.processes


@dataclass(frozen=True)
class Head:
    """A rank record. rank: None for a program that is no rank. program: a word of its command line. launcher: "" where nobody placed it.

    top: "self", or the NAME of a file pid-NAME that the top has written. optional: the record may be missing.
    """

    rank: int | None
    program: str
    launcher: str = "ranklaunch"
    top: str = "self"
    optional: bool = False

    def differences(self, record: Record, folder: Path) -> list[str]:
        wrong = []
        if running.rank_of(record) != ("" if self.rank is None else str(self.rank)):
            wrong.append(f"its rank is {running.rank_of(record)!r}")
        if not any(word.endswith(self.program) for word in record.data.get("argv") or []):
            wrong.append(f"argv is {record.data.get('argv')}")
        if (record.data.get("launcher") or "") != self.launcher:
            wrong.append(f"launcher is {record.data.get('launcher')!r}")
        top = (record.data.get("top") or {}).get("pid")
        if top != self._top(record, folder):
            wrong.append(f"top is {top}, and {self.top} is {self._top(record, folder)}")
        return wrong

    def _top(self, record: Record, folder: Path) -> int:
        return record.pid if self.top == "self" else int((folder / f"pid-{self.top}").read_text())


@dataclass(frozen=True)
class Case:
    """words: what `ranklaunch run` starts. files: what lies there. launchers: names of launcher records."""

    heads: Sequence[Head]
    files: Mapping[str, str]
    words: tuple[str, ...] = ("train.py",)
    method: str = "spawn"
    slots: int = 1
    launchers: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)


PRINTS = "print(1)"
HELPER = """
import os, subprocess, sys
subprocess.run([sys.executable, "helper.py"], check=True)
"""
TORCHRUN = """
import subprocess, sys
words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "inner.py"]
subprocess.run(words, check=True)
"""
TWO = """
echo $$ >"pid-shell-$RANK"
python one.py
python two.py
"""

CASES: Mapping[str, Case] = {
    "a program": Case([Head(0, "train.py"), Head(1, "train.py")], {"train.py": PRINTS}, slots=2),
    "a shell that starts two Pythons": Case(
        [Head(rank, program, top=f"shell-{rank}") for rank in (0, 1) for program in ("one.py", "two.py")],
        {"run.sh": TWO, "one.py": PRINTS, "two.py": PRINTS},
        words=("bash", "run.sh"),
        slots=2,
    ),
    "a shell that becomes Python": Case(
        [Head(0, "train.py")], {"run.sh": "exec python train.py\n", "train.py": PRINTS}, words=("bash", "run.sh")
    ),
    "a command around Python": Case(
        [Head(0, "train.py", top="timeout")],
        {"run.sh": "echo $$ >pid-timeout\nexec timeout 60 python train.py\n", "train.py": PRINTS},
        words=("bash", "run.sh"),
    ),
    "a Python that starts the program": Case(
        [Head(0, "train.py")], {"train.py": HELPER, "helper.py": HELPER.replace("helper", "last"), "last.py": PRINTS}
    ),
    "a Python that becomes another": Case(
        [Head(0, "", top="self")],
        {"train.py": "import os, sys\nos.execv(sys.executable, [sys.executable, 'second.py'])", "second.py": PRINTS},
    ),
    "a helper with another rank": Case(
        [Head(0, "train.py"), Head(5, "helper.py", launcher="")],
        {
            "train.py": """
                import os, subprocess, sys
                subprocess.run([sys.executable, "helper.py"], env={**os.environ, "RANK": "5"}, check=True)
            """,
            "helper.py": PRINTS,
        },
    ),
    "a shell's helper with another rank": Case(
        [Head(0, "train.py"), Head(5, "helper.py", launcher="")],
        {"run.sh": "RANK=5 python helper.py\nexec python train.py\n", "train.py": PRINTS, "helper.py": PRINTS},
        words=("bash", "run.sh"),
    ),
    "a helper without a rank": Case(
        [Head(0, "train.py")],
        {
            "train.py": """
                import os, subprocess, sys
                env = {name: os.environ[name] for name in os.environ if "RANK" not in name or "RANKLAUNCH" in name}
                env = {name: env[name] for name in env if not name.startswith(("MASTER_", "WORLD_", "LOCAL_", "GROUP_", "JAX_", "MS_"))}
                subprocess.run([sys.executable, "helper.py"], env=env)
            """,
            "helper.py": PRINTS,
        },
    ),
    "a program that gives its workers ranks": Case(
        [Head(0, "train.py")],
        {
            "train.py": """
                import multiprocessing, os

                def work():
                    print("rank", os.environ["RANK"])

                if __name__ == "__main__":
                    for rank, method in enumerate(("fork", "spawn", "forkserver"), 5):
                        os.environ["RANK"] = str(rank)
                        worker = multiprocessing.get_context(method).Process(target=work)
                        worker.start()
                        worker.join()
            """,
        },
    ),
    "a program that gives itself another rank, and a helper": Case(
        [Head(0, "train.py"), Head(5, "helper.py", launcher="")],
        {"train.py": "import os\nos.environ['RANK'] = '5'\n" + HELPER, "helper.py": PRINTS},
    ),
    "a daemon that ranklaunch has adopted": Case(
        [Head(0, "train.py")],
        {
            "train.py": """
                import os, subprocess, time
                subprocess.run(["sh", "start.sh"], check=True)
                while not os.path.exists("adopted"):
                    time.sleep(0.01)
            """,
            # The shell that has started it is gone before Python starts.
            "start.sh": "(while kill -0 $$ 2>/dev/null; do sleep 0.01; done; exec python daemon.py) &\n",
            "daemon.py": "import os\nopen('adopted.new', 'w').close()\nos.rename('adopted.new', 'adopted')",
        },
    ),
    "python -I, whose helpers are the first that write": Case(
        [Head(0, "one.py", top="train"), Head(0, "two.py", top="train")],
        {
            "run.sh": "exec python -I train.py\n",
            "train.py": """
                import os, subprocess, sys
                with open("pid-train", "w") as file:
                    file.write(str(os.getpid()))
                for name in ("one.py", "two.py"):
                    subprocess.run([sys.executable, name], check=True)
            """,
            "one.py": PRINTS,
            "two.py": PRINTS,
        },
        words=("bash", "run.sh"),
    ),
    "a shell that loses our PYTHONPATH": Case(
        [Head(0, "train.py", optional=True)],
        {"run.sh": "PYTHONPATH=$PWD exec python train.py\n", "train.py": PRINTS},
        words=("bash", "run.sh"),
    ),
}

WITH_TORCHRUN: Mapping[str, Case] = {
    "torchrun": Case(
        [Head(0, "train.py", launcher="torchrun"), Head(1, "train.py", launcher="torchrun")],
        {"train.py": PRINTS},
        method="torchrun",
        slots=2,
        launchers=("torchrun",),
    ),
    "a shell below torchrun that starts two Pythons": Case(
        [Head(rank, program, "torchrun", f"shell-{rank}") for rank in (0, 1) for program in ("one.py", "two.py")],
        {"run.sh": TWO, "one.py": PRINTS, "two.py": PRINTS},
        words=("bash", "run.sh"),
        method="torchrun",
        slots=2,
        launchers=("torchrun",),
    ),
    "a program that starts torchrun": Case(
        [Head(None, "train.py"), *(Head(rank, "inner.py", launcher="torchrun") for rank in (0, 1))],
        {"train.py": TORCHRUN, "inner.py": PRINTS},
        method="plain",
        launchers=("torchrun",),
    ),
    "a rank that starts torchrun": Case(
        [Head(0, "train.py"), Head(0, "inner.py", launcher="torchrun"), Head(1, "inner.py", launcher="torchrun")],
        {"train.py": TORCHRUN, "inner.py": PRINTS},
        launchers=("torchrun",),
    ),
    "a rank of torchrun that starts torchrun": Case(
        [
            *(Head(rank, "train.py", launcher="torchrun") for rank in (0, 1)),
            *(Head(rank, "inner.py", launcher="torchrun") for rank in (0, 1)),
        ],
        {
            "train.py": "import os\nif os.environ['RANK'] == '1':\n" + textwrap.indent(TORCHRUN.strip("\n"), "    "),
            "inner.py": PRINTS,
        },
        method="torchrun",
        slots=2,
        launchers=("torchrun", "torchrun"),
    ),
    "workers of a DataLoader whose program has given itself a rank": Case(
        [Head(0, "train.py")],
        {
            "train.py": """
                import os
                import torch.utils.data

                class Numbers(torch.utils.data.Dataset):
                    def __len__(self):
                        return 2

                    def __getitem__(self, index):
                        return index

                if __name__ == "__main__":
                    os.environ["RANK"] = "5"
                    for context in ("fork", "spawn"):
                        print(list(torch.utils.data.DataLoader(Numbers(), num_workers=1, multiprocessing_context=context)))
            """,
        },
    ),
}

SCHEDULER = """
import os, time
if os.environ.get("MS_ROLE") == "MS_SCHED":
    while not all(os.path.exists(f"ended-{rank}") for rank in (0, 1)):
        time.sleep(0.02)
else:
    open("ended-" + os.environ["RANK_ID"], "w").close()
"""

WITH_OTHERS: Mapping[str, Case] = {
    "msrun, whose scheduler is no rank": Case(
        [Head(0, "train.py", launcher="msrun"), Head(1, "train.py", launcher="msrun")],
        {"train.py": SCHEDULER},
        method="msrun",
        slots=2,
        launchers=("msrun",),
    ),
    "mpirun, with a shell": Case(
        [Head(rank, program, "mpirun", f"shell-{rank}") for rank in (0, 1) for program in ("one.py", "two.py")],
        {"run.sh": TWO.replace("$RANK", "$OMPI_COMM_WORLD_RANK"), "one.py": PRINTS, "two.py": PRINTS},
        words=("bash", "run.sh"),
        method="mpirun",
        slots=2,
    ),
}
NEEDS = {"msrun": importlib.util.find_spec("mindspore"), "mpirun": shutil.which("mpirun")}


def run(starter: Starter, case: Case) -> None:
    folder = starter.folder
    for name, text in case.files.items():
        (folder / name).write_text(textwrap.dedent(text).lstrip("\n"))
    env = {**running.ENV, **case.env}
    job = starter.run(*case.words, options=("--method", case.method, "--slots", case.slots), cwd=folder, env=env, grace_s=5)
    assert job.end(running.LONG_S) == 0, job.err.text + job.out.text
    records = read_records(folder / "logs")
    wrong = wrong_files(records) + wrong_heads(case.heads, of_kind(records, "rank"), folder)
    launchers = sorted(str(record.data.get("name")) for record in of_kind(records, "launcher"))
    if launchers != sorted(case.launchers):
        wrong.append(f"launcher records are of {launchers}")
    if any(running.codes_of_launchers(records)):
        wrong.append(f"launchers ended with {running.codes_of_launchers(records)}")
    ended = {record.process for record in of_kind(records, "launcher")}
    wrong += [f"too much: {each}" for each in records if each.kind in {"exception", "exit"} and each.process not in ended]
    running.check(wrong, job)


def wrong_heads(heads: Sequence[Head], records: Sequence[Record], folder: Path) -> list[str]:
    remaining = list(records)
    wrong = []
    for head in sorted(heads, key=lambda head: head.optional):
        fitting = next((record for record in remaining if not head.differences(record, folder)), None)
        if fitting:
            remaining.remove(fitting)
        elif not head.optional:
            nearest = min((head.differences(record, folder) for record in remaining), key=len, default=["there is no other"])
            wrong.append(f"missing: {head}; nearest: {'; '.join(nearest)}")
    more = ("variables", "launcher", "top", "parent")
    return wrong + [f"too much: {record} { ({name: record.data.get(name) for name in more}) }" for record in remaining]


@pytest.mark.parametrize("name", CASES)
def test_heads(as_process: Starter, name: str) -> None:
    run(as_process, CASES[name])


@pytest.mark.training
@pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="PyTorch is not installed")
@pytest.mark.parametrize("name", WITH_TORCHRUN)
def test_heads_below_torchrun(as_process: Starter, name: str) -> None:
    run(as_process, WITH_TORCHRUN[name])


@pytest.mark.launchers
@pytest.mark.parametrize("name", WITH_OTHERS)
def test_heads_below_other_launchers(as_process: Starter, name: str) -> None:
    case = WITH_OTHERS[name]
    if not NEEDS[case.method]:
        pytest.skip(f"{case.method} is not installed")
    run(as_process, case)
