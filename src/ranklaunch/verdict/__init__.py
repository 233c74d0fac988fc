"""The verdict: its values, its rules (blame), and messages about it between nodes."""
