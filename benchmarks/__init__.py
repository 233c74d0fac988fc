"""Measurements against other launchers: `python -m benchmarks.bench`, or `make bench`."""
