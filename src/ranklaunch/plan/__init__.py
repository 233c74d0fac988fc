"""What will happen on one node, as values, and how it follows from an environment."""
