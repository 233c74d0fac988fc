"""exits.py CODE [--after S] [--when FILE] [--rank R]: prints "ready", says that it exits and exits with CODE.

With --rank, only rank R does; the others sleep. With --when, once FILE is there.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

parser = argparse.ArgumentParser(allow_abbrev=False)
parser.add_argument("code", type=int)
parser.add_argument("--after", type=float, default=0, metavar="S")
parser.add_argument("--when", metavar="FILE")
parser.add_argument("--rank", metavar="R")
options, _ = parser.parse_known_args()
own_rank = os.environ.get("RANK", os.environ.get("RANK_ID"))

print("ready", flush=True)
if options.rank not in {None, own_rank}:
    time.sleep(600)
time.sleep(options.after)
while options.when and not os.path.exists(options.when):
    time.sleep(0.02)
print(f"rank {own_rank} exits with {options.code}", flush=True)
sys.exit(options.code)
