"""Plans: the complete description of a node's work, and its derivation from an environment."""
