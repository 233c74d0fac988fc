"""How processes ended, as values: one RankEnd for each, and the set of all ends of a node, which ends.json holds. Pure."""
