"""Which DeepSpeed configuration is the fastest that fits: what is tried, in which order, and what its results say. Everything here
computes alone; what starts experiments is elsewhere."""
