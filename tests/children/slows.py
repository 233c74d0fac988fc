"""Trains nothing, in steps that become six times as long at step 80: until the file argv[1]/go is there. Ends when argv[1]/end is there."""

from __future__ import annotations

import itertools
import sys
import time
from pathlib import Path

go, end = (Path(sys.argv[1]) / name for name in ("go", "end"))
for step in itertools.count(1):
    time.sleep(0.24 if step >= 80 and not go.exists() else 0.04)
    print(f"step: {step}  loss:  {7.9 / step:.4f}", flush=True)
    if end.exists():
        break
