"""Ends of processes, as values: one RankEnd per process, and all ends of a node in NodeEnds, the content of ends.json."""
