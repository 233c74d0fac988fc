"""The nodes of one job meet, start together and end together: what they say to each other, and what follows from it. Pure: the
sockets are in ranklaunch.supervise: door and hub (node 0's side), member (every node's side)."""
