"""Prints its arguments and the variable ODD as JSON, each as hexadecimal digits of its bytes."""

from __future__ import annotations

import json
import os
import sys

print(json.dumps({"argv": [os.fsencode(word).hex() for word in sys.argv], "ODD": os.fsencode(os.environ["ODD"]).hex()}))
