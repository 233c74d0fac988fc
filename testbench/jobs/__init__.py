"""A real ranklaunch that tests start: as one job, or on several hosts."""
