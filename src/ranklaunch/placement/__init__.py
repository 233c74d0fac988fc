"""Rank heads and launchers of a node, as values, and rules over them: whether ranks work alone, twice, or were left at work."""
