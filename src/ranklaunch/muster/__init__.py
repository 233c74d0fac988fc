"""The start barrier (muster): the nodes of one job meet, start together and end together.

| module | contents |
| --- | --- |
| hub, member | two state machines, of node 0 and of every node: events go in, actions come out |
| barrier, membership, reports, liveness | parts of the hub: missing nodes, disagreements, failures, lost nodes |
| events | events and actions, and the common base of both machines |
| door, dialler | sockets: node 0 listens, the other nodes connect |
| wire, secret | messages and their signatures |
| driver | performs actions on the event loop |
| nodes | the supervisor's side |
"""

EVIDENCE_S = 15.0  # added to the grace period after a failure: nodes collect evidence before they stop
