"""Restarts after a failed round: facts of the round, the decision, and the removal of leftovers."""
