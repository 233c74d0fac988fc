"""The nodes of one job meet, start together and end together. Two machines say what follows from what: hub (node 0's side) and member
(every node's side), with gathering, roll, reports and words below them. They are pure: events go in, actions come out (events). Sockets
are in door (node 0 listens) and dialler (the others come); driver does what the machines say; nodes is what a supervisor sees of
all this."""

EVIDENCE_S = 15.0  # beyond the grace, after a failure: for what nodes take of it before they stop
