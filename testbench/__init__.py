"""Shared by tests, benchmarks and `make hosts`: hosts made of namespaces, real ranklaunch processes on them, stand-ins for clusters, and
validators of ranklaunch's output. For development only: not in the wheel (docs/adr/0013-testbench.md)."""
