"""task.py --do PLACE=WHAT ... [what ranklaunch appends]: does what is said for its place, "worker0" or "ps1"; a place of which nothing is
said sleeps. Prints what it was told first.

exit:CODE   exits
after:FILE  exits with 0 once the file is there
hold        ignores SIGTERM, and sleeps
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time

parser = argparse.ArgumentParser(allow_abbrev=False)
parser.add_argument("--do", action="append", default=[])
parser.add_argument("--job_name", required=True)
parser.add_argument("--task_index", required=True)
options, rest = parser.parse_known_args()
signal.signal(signal.SIGINT, signal.SIG_DFL)
place = options.job_name + options.task_index
orders = dict(order.split("=") for order in options.do)
print(json.dumps({"place": place, "rest": rest, "config": json.loads(os.environ["TF_CONFIG"])}), flush=True)
what, _, code = orders.get(place, "sleep").partition(":")
if what == "exit":
    sys.exit(int(code))
if what == "hold":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
while what == "after":
    if os.path.exists(code):
        sys.exit(0)
    time.sleep(0.05)
time.sleep(600)
