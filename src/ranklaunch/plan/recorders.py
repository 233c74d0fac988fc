"""Recorders of accelerators: flight recorders of collectives, and CANN's own logs.

Sources: PyTorch's torch/csrc/distributed/c10d/FlightRecorder.hpp and ProcessGroupNCCL.hpp (names by version: pull request 152563, in 2.8),
torch_npu's ProcessGroupHCCL.cpp, and CANN's environment variable reference (ASCEND_PROCESS_LOG_PATH).
"""

from __future__ import annotations

from collections.abc import Iterable

from ranklaunch.env.reader import Reader
from ranklaunch.files import join
from ranklaunch.plan import facts
from ranklaunch.plan.model import Plan, Recorder, Recorders

BUFFER = "2000"  # collectives; PyTorch's own default since 2.6
RENAMED = "2.8"  # torch version since which the recorder's variables do not have NCCL in their names
NPU = "npu"
OFF = "off"
# Variables of torch: new name, and old name, of which newer versions warn.
_SIZE = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
_FILE = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_ON_TIMEOUT = "TORCH_NCCL_DUMP_ON_TIMEOUT"
_PIPE = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
_HCCL = "TORCH_HCCL_"
_WHY_SIZE = f"record the last {BUFFER} collectives of a rank; without it several versions make no fifo"
_WHY_FILE = "path of a dump on this machine's own disk; it becomes evidence"
_WHY_FIFO = "a byte written there makes a rank dump its record, and it goes on"


def of(plan: Plan, reader: Reader, mode: str, run_dir: str, logs: str, first: tuple[Recorder, ...]) -> Recorders:
    """Return the recorders of a plan.

    mode: on, npu or off. run_dir: parent of private folders. logs: the attempt's folder. first: recorders for every accelerator.
    """
    folder = _folder(plan, run_dir)
    recorders = [*first]
    if mode != OFF and plan.job.accelerator == "gpu":
        recorders += _of_nccl(_torch(plan, reader), folder, reader)
    elif mode != OFF and plan.job.accelerator == "npu":
        recorders += _unset(_of_cann(plan, logs), reader)
        recorders += _unset(_of_hccl(folder), reader) if mode == NPU else ()
    private = any(each.value.startswith(folder) for each in recorders)
    fifo = next((each.name for each in recorders if each.name.endswith("PIPE_FILE")), "")
    return Recorders(tuple(recorders), folder if private else "", fifo)


def _of_nccl(torch: str | None, folder: str, reader: Reader) -> list[Recorder]:
    """Return the recorders of NCCL. torch: version of PyTorch, "" if it is unknown, None if PyTorch is not installed."""
    if torch is None:
        return []
    renamed = bool(torch) and not facts.is_older(torch, RENAMED)
    known = [
        (_SIZE, Recorder(_SIZE[not renamed], BUFFER, _WHY_SIZE)),
        (_FILE, Recorder(_FILE[not renamed], join(folder, "nccl_trace_rank_"), _WHY_FILE)),
        ((_PIPE,), Recorder(_PIPE, join(folder, "nccl_pipe_rank_"), _WHY_FIFO)),
    ]
    if not renamed:  # newer versions do so by default
        known.append(((_ON_TIMEOUT,), Recorder(_ON_TIMEOUT, "1", "a rank whose collective times out dumps its record")))
    return [recorder for names, recorder in known if not any(name in reader.env for name in names)]


def _of_hccl(folder: str) -> Iterable[Recorder]:
    yield Recorder(f"{_HCCL}TRACE_BUFFER_SIZE", BUFFER, _WHY_SIZE)
    yield Recorder(f"{_HCCL}DEBUG_INFO_TEMP_FILE", join(folder, "hccl_trace_rank_"), _WHY_FILE)
    yield Recorder(f"{_HCCL}DEBUG_INFO_PIPE_FILE", join(folder, "hccl_pipe_rank_"), _WHY_FIFO)
    yield Recorder(f"{_HCCL}DUMP_ON_TIMEOUT", "1", "a rank whose collective times out dumps its record")
    yield Recorder(
        f"{_HCCL}ENABLE_MONITORING", "1", "start the thread that reads the fifo; it also ends a rank whose watchdog is stuck for 600 s"
    )


def _of_cann(plan: Plan, logs: str) -> Iterable[Recorder]:
    name = "ASCEND_PROCESS_LOG_PATH"
    if not all(name in process.env for process in plan.processes):
        yield Recorder(name, join(logs, "ascend"), "CANN's own logs, kept as long as the log folder")


def _unset(recorders: Iterable[Recorder], reader: Reader) -> list[Recorder]:
    return [recorder for recorder in recorders if recorder.name not in reader.env]


def _torch(plan: Plan, reader: Reader) -> str | None:
    versions = facts.of_versions(plan.job, reader.files, reader.env, reader.cwd, "")
    return versions.get("torch", None if "Python" in versions else "")


def _folder(plan: Plan, run_dir: str) -> str:
    """Return the private folder. It is on this machine's own disk, and differs for jobs and nodes that share the machine."""
    job = plan.job
    mark = facts.digest("\0".join((job.name, job.log_dir, str(job.attempt))))
    return join(run_dir, f"ranklaunch-recorders-{mark.rpartition(':')[2]}")
