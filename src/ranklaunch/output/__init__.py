"""Output of processes: reading, splitting by rank, storing in logs, and showing on the console."""
