"""Real ranklaunch processes for tests: one job, or one on each of several hosts."""
