"""Program that asks the platform's route_plan library for the rank order that fits the network.

The user's interpreter runs this file, because the library is compiled for Python 3.7 to 3.10. So it imports nothing of ranklaunch and
works with Python 3.7.

Arguments: topology file, rank table (1.0), file for the planned table, server_id of this node, folder of the library, file for the
outcome. The outcome is JSON: status "planned", "unavailable" (the image has no library, so no node has one) or "failed", and the reason.
"""

import json
import os
import sys
from typing import List  # noqa: UP035 - Python 3.7


def main(argv: List[str]) -> int:  # noqa: UP006 - Python 3.7
    topology, table, planned, server, library, outcome = argv
    sys.path[0] = library  # instead of this file's folder
    try:
        from route_plan import RoutePlan
    except ImportError as error:
        return save(outcome, "unavailable", f"Python {sys.version_info[0]}.{sys.version_info[1]}: {error}")
    try:
        succeeded = RoutePlan.init(topology, table, planned, cursrvip=server)[0]
        if not succeeded or not os.path.exists(planned):
            return save(outcome, "failed", "the library made no table")
    except Exception as error:  # the library's exceptions are not documented: each is reported
        return save(outcome, "failed", f"{type(error).__name__}: {error}")
    return save(outcome, "planned", "")


def save(path: str, status: str, why: str) -> int:
    temporary = f"{path}.{os.urandom(8).hex()}.tmp"
    with open(temporary, "x") as file:
        json.dump({"status": status, "why": why}, file)
    os.replace(temporary, path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
