"""recorder.py STEM DUMP: a stand-in for what PyTorch's NCCL group and torch_npu's HCCL group do for a rank (ProcessGroupNCCL.cpp and
ProcessGroupHCCL.cpp, DumpPipe): makes the fifo <STEM><RANK>.pipe, opens it to read without waiting, looks at it now and then, and writes
the file DUMP, cut in two, to $TORCH_FR_DUMP_TEMP_FILE<RANK> or $TORCH_HCCL_DEBUG_INFO_TEMP_FILE<RANK> when a byte has come. Prints
"ready"."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

rank = os.environ["RANK"]
fifo = f"{sys.argv[1]}{rank}.pipe"
os.mkfifo(fifo, 0o666)
fd = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
dump = Path(sys.argv[2]).read_bytes()
print("ready", flush=True)
while True:
    time.sleep(0.05)
    if os.read(fd, 1):
        stem = os.environ.get("TORCH_FR_DUMP_TEMP_FILE") or os.environ["TORCH_HCCL_DEBUG_INFO_TEMP_FILE"]
        with open(stem + rank, "wb", buffering=0) as file:
            file.write(dump[:10])
            time.sleep(0.1)
            file.write(dump[10:])
