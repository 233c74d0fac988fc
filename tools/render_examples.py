"""Write the folders k8s, modelarts, slurm, clouds and batch of examples/: the output of `ranklaunch spec` with the options in COMMANDS.

.venv/bin/python tools/render_examples.py            write them
.venv/bin/python tools/render_examples.py --check    write nothing; name stale files and exit with 1
"""

from __future__ import annotations

import contextlib
import io
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from ranklaunch.entrypoints import main as entrypoint

ROOT = Path(__file__).resolve().parent.parent
IMAGE = "registry.example.com/team/train:1.0"
TRAIN = "-- examples/ddp_digits.py --epochs 5"

ON_HOSTS = ("slurm", "lsf", "pbs", "flux")  # kinds that need no image
SETUP = '--set \'batch.setup=["module load cuda", "source .venv/bin/activate"]\''

COMMANDS: dict[str, str] = {
    "examples/k8s/volcano-gpu.yaml": "volcano --nodes 2 --devices 8 --method torchrun --max-restarts 3 --set restart.onEviction=restart",
    "examples/k8s/volcano-npu.yaml": (
        "volcano --nodes 2 --devices 8 --device-kind npu --method ranktable --set rankTable.source=ascend-operator"
    ),
    "examples/k8s/jobset-gpu.yaml": "jobset --nodes 2 --devices 8 --method torchrun --max-restarts 3",
    "examples/k8s/job-cpu.yaml": "job --nodes 2 --devices 2 --device-kind cpu --method spawn --cpu 2 --memory 4Gi",
    "examples/k8s/trainjob-gpu.yaml": "trainjob --nodes 2 --devices 8 --method torchrun --max-restarts 3",
    "examples/k8s/mpijob-gpu.yaml": "mpijob --nodes 2 --devices 8 --method mpirun",
    "examples/k8s/acjob-npu.yaml": "acjob --nodes 2 --devices 8 --device-kind npu --method torchrun --set rankTable.source=ascend-operator",
    "examples/modelarts/torchrun-npu.json": (
        "modelarts --nodes 2 --devices 8 --device-kind npu --method torchrun --pool-id POOL_ID --max-restarts 3 "
        "--set modelarts.codeDir=/bucket/code/ --set modelarts.logUrl=/bucket/log/"
    ),
    "examples/slurm/torchrun-gpu.sh": (
        "slurm --nodes 2 --devices 8 --cpu 64 --method torchrun --partition gpu --set slurm.time=04:00:00 --max-restarts 2 "
        '--set \'slurm.setup=["module load cuda", "source .venv/bin/activate"]\''
    ),
    "examples/clouds/sky-gpu.yaml": (
        "sky --nodes 2 --devices 8 --method torchrun --max-restarts 2 --set cloud.accelerator=H100 --set cloud.spot=true "
        '--set cloud.code=. --set \'cloud.secrets={"RANKLAUNCH_SECRET": ""}\''
    ),
    "examples/clouds/gpu.dstack.yml": (
        "dstack --nodes 2 --devices 8 --method torchrun --shm 64Gi --deadline-s 86400 --set cloud.accelerator=H100 "
        '--set \'cloud.fleets=["train"]\' --set \'cloud.secrets={"RANKLAUNCH_SECRET": "ranklaunch_secret"}\''
    ),
    "examples/clouds/aws_batch-gpu.json": (
        "aws_batch --nodes 2 --devices 8 --method torchrun --cpu 96 --memory 1000Gi --shm 64Gi --max-restarts 2 --deadline-s 86400"
    ),
    "examples/clouds/azureml-gpu.yaml": (
        "azureml --nodes 2 --devices 8 --method torchrun --shm 64Gi --deadline-s 86400 --set cloud.compute=azureml:gpu --set cloud.code=."
    ),
    "examples/batch/gpu.lsf": f"lsf --nodes 2 --devices 8 --cpu 64 --method torchrun --deadline-s 14400 --set batch.queue=gpu {SETUP}",
    "examples/batch/gpu.pbs": f"pbs --nodes 2 --devices 8 --cpu 64 --method torchrun --deadline-s 14400 --set batch.queue=gpu {SETUP}",
    "examples/batch/gpu.flux": f"flux --nodes 2 --devices 8 --cpu 64 --method torchrun --deadline-s 14400 --set batch.queue=gpu {SETUP}",
}


def main(argv: Sequence[str], root: Path = ROOT) -> int:
    if list(argv) not in ([], ["--check"]):
        sys.stderr.write(__doc__ or "")
        return 2
    stale = [(path, text) for path, text in files(root) if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path, text in stale:
        if argv:
            sys.stderr.write(f"{path.relative_to(root)} is stale: run tools/render_examples.py\n")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return 1 if stale and argv else 0


def files(root: Path) -> Iterator[tuple[Path, str]]:
    for name, options in COMMANDS.items():
        image = "" if options.startswith(ON_HOSTS) else f"--image {IMAGE} "
        line = f"spec {options} --name digits {image}{TRAIN}"
        yield root / name, (f"# ranklaunch {line}\n" if name.endswith((".yaml", ".yml")) else "") + rendered(line)


def rendered(line: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = entrypoint.main(shlex.split(line), {})
    if code:
        sys.exit(code)
    return out.getvalue()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
