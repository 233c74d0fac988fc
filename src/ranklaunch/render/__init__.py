"""Templates, and the quoting of what they render."""
