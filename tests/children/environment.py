"""environment.py [--env A,B,C] ...: prints how it was started, as one line of JSON.

Its arguments, working directory, interpreter and those variables of its environment that --env names (patterns such as
MA_* too), or else those that tell a rank its place. Variables that are not set are left out.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import sys

PLACE = "RANK*,LOCAL_*,WORLD_SIZE,MASTER_*,GROUP_*,DEVICE_ID,ASCEND_*,RANK_TABLE_FILE"

parser = argparse.ArgumentParser(allow_abbrev=False)
parser.add_argument("--env", default=PLACE)
options, _ = parser.parse_known_args()
patterns = options.env.split(",")
shown = {name: value for name, value in os.environ.items() if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)}
print(json.dumps({"argv": sys.argv[1:], "env": shown, "cwd": os.getcwd(), "executable": sys.executable}), flush=True)
