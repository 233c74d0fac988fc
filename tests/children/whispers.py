"""Prints the shortest lines without end, each in a write of its own."""

from __future__ import annotations

import os
import time

deadline = time.monotonic() + 600
while time.monotonic() < deadline:
    os.write(1, b"\n")
