"""Logs of all ranks of a job, merged in the order of time, for `ranklaunch logs`."""
