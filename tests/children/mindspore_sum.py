"""A rank that meets the others with MindSpore, adds up, and ends when all have the sum; told to stop, with $STOPS_LATE, seconds later."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import ops
from mindspore.communication import get_group_size, get_rank, init, release

ms.set_device("CPU")
ms.set_context(mode=ms.PYNATIVE_MODE)
init("mccl")
stopped: list[int] = []
late = os.environ.get("STOPS_LATE")
if late:
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
total = ops.AllReduce()(ms.Tensor(np.ones(1), ms.float32)).asnumpy()
Path(f"has_{get_rank()}").touch()
while not all(Path(f"has_{rank}").exists() for rank in range(get_group_size())):  # whoever sends the sum needs the others' answer
    time.sleep(0.1)
# In one piece: where ranks share a pipe, others would write in between.
print(f"place {get_rank()} sum {int(total[0])}\n", end="", flush=True)
if late:
    while not stopped:
        time.sleep(0.1)
    time.sleep(float(late))
    print("saved", flush=True)
release()
