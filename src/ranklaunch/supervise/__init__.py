"""Effects: processes, signals, clocks and files. Executes a Plan and says truthfully how it ended."""
