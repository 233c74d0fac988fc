"""All families, in the order in which their entries are tried on a line: the first that matches has it."""

from __future__ import annotations

from ranklaunch.catalogue import ascend, cuda, gloo, hccl, mindspore, mpi, nccl, python, system, tensorflow, torch
from ranklaunch.catalogue.entry import KnownError

FAMILIES: dict[str, tuple[KnownError, ...]] = {
    "Ascend": (*hccl.ERRORS, *ascend.ERRORS, *ascend.VAGUE),
    "CUDA": cuda.ERRORS,
    "NCCL": (*nccl.ERRORS, *nccl.VAGUE),
    "Gloo": (*gloo.ERRORS, *gloo.VAGUE),
    "MPI": (*mpi.ERRORS, *mpi.REPORTS),
    "PyTorch": (*torch.ERRORS, *torch.VAGUE, *torch.AFTERMATH, *torch.REPORTS),
    "MindSpore": (*mindspore.ERRORS, *mindspore.REPORTS),
    "TensorFlow": tensorflow.WAITS,
    "System": (*system.LIBRARIES, *system.ERRORS, *system.VAGUE),
    "Python": (*python.ERRORS, python.NO_PROGRAM, python.UNCAUGHT),
}

# What a launcher says of its processes. Its tracebacks are not those of the program.
REPORTS = (*mpi.REPORTS, *torch.REPORTS, *mindspore.REPORTS)
# Any other entry of the same kind wins over these.
LAST = (
    *ascend.VAGUE, *nccl.VAGUE, *gloo.VAGUE, *torch.VAGUE, *system.VAGUE, *tensorflow.WAITS, *REPORTS,
    python.NO_PROGRAM, python.UNCAUGHT, *torch.AFTERMATH,
)  # fmt: skip
# They count only where nothing else is known.
AFTERMATH = torch.AFTERMATH
# They count only where the program did not go on after them.
SURVIVABLE = (*system.LIBRARIES, *python.ERRORS, python.NO_PROGRAM)

# They count only at the very end.
WAITS = tensorflow.WAITS

ERRORS: tuple[KnownError, ...] = (
    *(error for errors in FAMILIES.values() for error in errors if error not in LAST),
    *LAST,
)
