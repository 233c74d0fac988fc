"""Comparison with other launchers by measurement: `python -m benchmarks.bench`, or `make bench`."""
