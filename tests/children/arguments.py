"""Prints who it is and its arguments, as JSON. As msrun's scheduler it does nothing."""

from __future__ import annotations

import json
import os
import sys

if os.environ.get("MS_ROLE") != "MS_SCHED":
    print(json.dumps({"argv": sys.argv[1:], "rank": os.environ.get("RANK_ID")}), flush=True)
