"""Spread of a model over ranks, for people: the node, the layers and the communication partners of each rank."""
