"""Program that waits for all nodes of a Ray cluster and then executes the user's program.

The user's interpreter runs this file. So it imports nothing of ranklaunch and works with Python 3.7.

Arguments: file with the port of the head, address of the head with {port} for this port, number of nodes, seconds to wait, and the user's
program, which gets the address as RAY_ADDRESS. Exits with 75 if a node has not joined in time.
"""

import os
import sys
import time

LOOK_S = 0.1
ALONE_LOOK_S = 0.02  # for a cluster of one node
ALONE_S = 20.0  # a cluster of one node is asked directly after this time
NOTE_S = 30.0  # between notes about missing nodes


def main(file, address, nodes, seconds, argv):
    with open(file) as text:
        address = os.environ["RAY_ADDRESS"] = address.replace("{port}", text.read().strip())
    started = os.path.join(os.path.dirname(file), "ray_started")
    if nodes == 1 and await_own(started, min(seconds, ALONE_S)):
        os.execvp(argv[0], argv)
    from ray._raylet import GcsClient  # Ray has no public call that lists nodes without starting a job

    began = last_note = time.monotonic()
    joined = []
    while True:
        try:
            joined = alive(GcsClient(address=address)) if not joined else alive(joined[0])
        except Exception as error:  # the head has not started yet
            joined, why = [], str(error).strip().splitlines()[:1]
        else:
            why = []
        names = joined[1] if joined else []
        if len(names) >= nodes:
            break
        now = time.monotonic()
        if now - began > seconds:
            joined_nodes = f"{len(names)} of {nodes} nodes have joined the Ray cluster after {now - began:.0f} s: {', '.join(names)}"
            print(f"only {joined_nodes} {''.join(why)}; see Ray's output on the missing nodes", flush=True)
            return 75
        if now - last_note > NOTE_S:
            last_note = now
            print(f"waiting for nodes of the Ray cluster: {len(names)} of {nodes} have joined ({', '.join(names)})", flush=True)
        time.sleep(LOOK_S)
    os.execvp(argv[0], argv)
    return 0  # not reached


def await_own(started, seconds):
    """Wait for the file that ray_node.py makes when this node has joined. Return False if it does not come in time.

    Asking Ray itself would need its import: half a second of CPU, which Ray's start needs at the same time.
    """
    deadline = time.monotonic() + seconds
    while not os.path.exists(started):
        if time.monotonic() > deadline:
            return False  # another version of Ray may print another message
        time.sleep(ALONE_LOOK_S)
    return True


def alive(client):
    """Return the client, and the sorted addresses of the living nodes."""
    nodes = client.get_all_node_info(timeout=5)
    return client, sorted(node.node_manager_address for node in nodes.values() if node.state == 0)


sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), sys.argv[6:]))
