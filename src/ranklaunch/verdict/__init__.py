"""What happened: its values, who is to blame, and messages about it between nodes."""
