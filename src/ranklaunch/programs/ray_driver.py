"""Wait for all nodes of a Ray cluster; then the process becomes the program. A program, not a module: the user's interpreter runs the
file, so the file imports nothing of ranklaunch and stays with Python 3.7.

Arguments: a file with the port of the head, the address of the head, with {port} for this port, number of nodes, seconds to wait, and
the program, which gets the address as RAY_ADDRESS. Ends with 75 if a node has not joined in time.
"""

import os
import sys
import time

LOOK_S = 0.1
ALONE_LOOK_S = 0.02
ALONE_S = 20.0
SAY_S = 30.0


def main(file, address, nodes, seconds, argv):
    with open(file) as text:
        address = os.environ["RAY_ADDRESS"] = address.replace("{port}", text.read().strip())
    started = os.path.join(os.path.dirname(file), "ray_started")
    if nodes == 1 and await_own(started, min(seconds, ALONE_S)):
        os.execvp(argv[0], argv)
    from ray._raylet import GcsClient  # no public call of Ray tells of nodes without starting a job

    began = last_note = time.monotonic()
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
        if now - last_note > SAY_S:
            last_note = now
            print(f"waiting for nodes of Ray: {len(names)} of {nodes} have joined ({', '.join(names)})", flush=True)
        time.sleep(LOOK_S)
    os.execvp(argv[0], argv)
    return 0  # never


def await_own(started, seconds):
    """Wait until this node's ray_node.py has made a file. To ask Ray would need its import: half a
    second of CPU that its own start needs. Return False if the file does not come in time."""
    deadline = time.monotonic() + seconds
    while not os.path.exists(started):
        if time.monotonic() > deadline:
            return False  # other versions of Ray may print other words
        time.sleep(ALONE_LOOK_S)
    return True


def alive(client):
    """Return the client, and the addresses of the nodes that live."""
    nodes = client.get_all_node_info(timeout=5)
    return client, sorted(node.node_manager_address for node in nodes.values() if node.state == 0)


sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), sys.argv[6:]))
