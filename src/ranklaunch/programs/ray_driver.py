"""Waits until all nodes have joined a cluster of Ray, and becomes the program. A program, not a module: the user's interpreter runs it, so
it imports nothing of ranklaunch and stays with Python 3.7.

Arguments: a file with the port of the head, the address of the head, in which {port} stands for that, number of nodes, seconds to wait, --,
and the program, which gets the address as RAY_ADDRESS. Ends with 75 if a node has not joined in time.
"""

import os
import sys
import time

LOOK_S = 0.1
SAY_S = 30.0


def main(file, address, nodes, seconds, argv):
    with open(file) as text:
        address = os.environ["RAY_ADDRESS"] = address.replace("{port}", text.read().strip())
    from ray._raylet import GcsClient  # no public call of Ray tells of nodes without starting a job

    began = said = time.monotonic()
    joined = []
    while True:
        try:
            joined = alive(GcsClient(address=address)) if not joined else alive(joined[0])
        except Exception as error:  # the head is not there yet
            joined, why = [], str(error).strip().splitlines()[:1]
        else:
            why = []
        names = joined[1] if joined else []
        if len(names) >= nodes:
            break
        now = time.monotonic()
        if now - began > seconds:
            print(f"Ray has {len(names)} of {nodes} nodes after {now - began:.0f} s: {', '.join(names)} {''.join(why)}", flush=True)
            return 75
        if now - said > SAY_S:
            said = now
            print(f"waiting for nodes of Ray: {len(names)} of {nodes} have joined ({', '.join(names)})", flush=True)
        time.sleep(LOOK_S)
    os.execvp(argv[0], argv)
    return 0  # never


def alive(client):
    """Return the client, and the addresses of the nodes that live."""
    found = client.get_all_node_info(timeout=5)
    return client, sorted(node.node_manager_address for node in found.values() if node.state == 0)


sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), sys.argv[6:]))
