"""Warnings of `ranklaunch spec` about programs that are launchers themselves."""

from __future__ import annotations

import helpers
import pytest

from ranklaunch.api import make_spec

TWO = ("--nodes", "2")
IMAGE = ("--image", "train:1")
CASES = {
    "torchrun": ("slurm", TWO, "torchrun --nproc_per_node 8 t.py --lr 1", "without --nnodes", "--method torchrun -- t.py --lr 1"),
    "module": ("lsf", TWO, "python -m torch.distributed.run t.py", "without --nnodes", "--method torchrun -- t.py"),
    "shell": ("job", (*TWO, *IMAGE), "bash -c|torchrun t.py", "without --nnodes", "--method torchrun -- t.py"),
    "node 0": (
        "slurm",
        TWO,
        "torchrun --nnodes 2 --node_rank 0 --master_addr n0 t.py",
        "its --node_rank is 0",
        "--method torchrun -- t.py",
    ),
    "last node": ("slurm", TWO, "torchrun --nnodes 2 --node_rank 1 --master_addr n0 t.py", "--node_rank is 1", "--method torchrun -- t.py"),
    "accelerate": ("volcano", (*TWO, *IMAGE), "accelerate launch t.py", "without --num_machines", "--method accelerate -- t.py"),
    "deepspeed": ("slurm", TWO, "deepspeed t.py", "without --no_ssh", "--method deepspeed -- t.py"),
    "mpirun": ("slurm", TWO, "mpirun -np 16 python t.py", "one starts the ranks of all nodes", "--method mpirun -- t.py"),
    "mode": ("slurm", ("--method", "torchrun"), "torchrun t.py", "mode=torchrun would start torchrun", "--method torchrun -- t.py"),
    "mpijob": ("mpijob", IMAGE, "mpirun t.py", "mode=mpirun would start mpirun", "--method mpirun -- t.py"),
    "ray": ("slurm", (*TWO, "--method", "ray"), "ray symmetric-run -- python t.py", "mode=ray starts a cluster", "--method ray -- t.py"),
    "own": ("slurm", (), "ranklaunch run t.py", "would start the same job below this one", "-- t.py, without ranklaunch run"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_launcher_that_run_would_refuse_is_warned_of_with_the_method(case: str) -> None:
    kind, options, program, why, instead = CASES[case]
    words = program.partition("|")
    given = [*words[0].split(), *words[2:]] if words[1] else program.split()
    done = helpers.call("spec", kind, "--name", "llm", *options, "--", *given)
    assert done.code == 0, done.err
    (warning,) = (line for line in done.err.splitlines() if "so it will not start" in line)
    assert why in warning
    assert warning.endswith(f": write {instead}")


@helpers.for_each(
    [
        ((), "torchrun --nproc_per_node 8 t.py"),
        ((*TWO, "--method", "plain"), "torchrun t.py"),
        (TWO, "torchrun --nnodes 2 --rdzv_backend c10d --rdzv_endpoint n0:29500 t.py"),
        (TWO, "accelerate launch --config_file mine.yaml t.py"),
        (TWO, "t.py torchrun"),
        ((*TWO, "--method", "ray"), "python -m verl.trainer.main_ppo trainer.nnodes=2"),
        (TWO, "python -m verl.trainer.main_ppo trainer.nnodes=2"),
    ]
)
def test_a_launcher_that_may_start_is_not_warned_of(options: tuple[str, ...], program: str) -> None:
    done = helpers.call("spec", "slurm", "--name", "llm", *options, "--", *program.split())
    assert (done.code, done.err) == (0, "")


def test_callers_from_python_are_warned_too() -> None:
    with pytest.warns(UserWarning, match="so it will not start: write --method torchrun -- t.py"):
        make_spec("slurm", {"name": "llm", "nodes": 2, "script": "torchrun", "args": ["t.py"]})


@pytest.mark.parametrize("program", ["srun python t.py", "/opt/slurm/bin/sbatch job.sh"])
def test_a_starter_of_slurm_below_srun_is_warned_of(program: str) -> None:
    done = helpers.call("spec", "slurm", "--name", "llm", "--", *program.split())
    assert "the script starts the program by srun itself" in done.err
    assert helpers.call("spec", "lsf", "--name", "llm", "--", *program.split()).err == ""
