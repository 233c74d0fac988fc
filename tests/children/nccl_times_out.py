"""nccl_times_out.py DUMP_0 DUMP_1 [deaf [STEM]|mute]: what two ranks of PyTorch's NCCL group do of which rank 1 does not come to a
collective, as seen with PyTorch 2.11 and NCCL 2.28.9 on an H200: the watchdog of rank 0 dumps what it has recorded by itself, says so and
aborts; rank 1 waits elsewhere, and dumps when its fifo is written to (recorder.py), or (deaf) has dumped with rank 0 and looks at its fifo
no more, or (mute) finds no time to dump. STEM: of the paths of dumps."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path

WORK = "WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1048576, NumelOut=1048576, Timeout(ms)=12000) ran for 12032 milliseconds"
TIMEOUT = f"[rank0]:[E1126 14:26:40.203412201 ProcessGroupNCCL.cpp:689] [Rank 0] Watchdog caught collective operation timeout: {WORK}"

dump = sys.argv[4] if sys.argv[4:] else os.environ["TORCH_FR_DUMP_TEMP_FILE"]
fifo = os.environ.get("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", dump) + "1.pipe"
is_there = Path(sys.argv[2] + ".ready")
if os.environ["RANK"] == "1" and sys.argv[3:]:
    os.mkfifo(fifo)
    fd = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    if sys.argv[3] == "deaf":
        shutil.copyfile(sys.argv[2], dump + "1")
    is_there.touch()
    time.sleep(600)
elif os.environ["RANK"] == "1":
    recorder = os.path.join(os.path.dirname(__file__), "recorder.py")
    os.execv(sys.executable, [sys.executable, recorder, os.environ["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"], sys.argv[2]])
while not (is_there.exists() or os.path.exists(fifo)):
    time.sleep(0.05)
shutil.copyfile(sys.argv[1], dump + "0")
print(f"{TIMEOUT} before timing out.", file=sys.stderr, flush=True)
os.abort()
