"""Rank heads and launchers of a node as values, and rules that find ranks that work alone, ranks started twice, and leftover ranks."""
