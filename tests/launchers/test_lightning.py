"""Lightning on two nodes of Slurm, whose variables it goes by before it looks at RANK: it must see all ranks of the job, each once."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys

import pytest
from slurm_jobs import LONG_S

from testbench.jobs.job import RANKLAUNCH
from testbench.slurm import Slurm

pytestmark = [
    pytest.mark.launchers,
    pytest.mark.skipif(not importlib.util.find_spec("pytorch_lightning"), reason="needs Lightning: make .venv/.installed-launchers"),
]

# What a rank counts is what all ranks saw: the samples of one epoch, each by one of them.
PROGRAM = """
import sys, torch, pytorch_lightning as pl

class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer, self.seen = torch.nn.Linear(1, 1), 0

    def training_step(self, batch):
        self.seen += len(batch[0])
        return self.layer(batch[0]).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

model = Model()
trainer = pl.Trainer(
    accelerator="cpu", devices=int(sys.argv[1]), num_nodes=2, strategy="ddp", max_epochs=1, logger=False,
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
)
data = torch.utils.data.TensorDataset(torch.arange(32.0).reshape(-1, 1))
trainer.fit(model, torch.utils.data.DataLoader(data, batch_size=2))
seen = trainer.strategy.reduce(torch.tensor(float(model.seen)), reduce_op="sum")
print("rank", trainer.global_rank, "of", trainer.world_size, "on node", trainer.node_rank, "all saw", int(seen), flush=True)
"""


@pytest.mark.parametrize(
    ("method", "slots"),
    [pytest.param("spawn", 1, marks=pytest.mark.table), ("spawn", 2), pytest.param("torchrun", 2, marks=pytest.mark.table)],
)
def test_two_nodes_of_slurm(slurm: Slurm, method: str, slots: int) -> None:
    program = slurm.folder / "train.py"
    program.write_text(PROGRAM)
    words = (*RANKLAUNCH, "run", "--python", sys.executable, "--method", method, "--slots", str(slots), program, slots)
    with slurm.popen("srun", "-N2", "--ntasks-per-node=1", *words) as job:
        out, err = job.communicate(timeout=LONG_S)
    done = subprocess.CompletedProcess(words, job.returncode, out, err)
    assert done.returncode == 0, done.stdout + done.stderr
    told = sorted(re.findall(r"rank (\d+) of (\d+) on node (\d+) all saw (\d+)", done.stdout))
    assert told == [(str(rank), str(2 * slots), str(rank // slots), "32") for rank in range(2 * slots)], done.stdout + done.stderr
