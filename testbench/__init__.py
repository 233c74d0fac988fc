"""What benchmarks, tests and `make hosts` share: hosts made of namespaces, real ranklaunches to start there, stand-ins for clusters, and
judges of what ranklaunch makes. For development only: no wheel has it (docs/adr/0013-testbench.md)."""
