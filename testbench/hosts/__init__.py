"""Several hosts on one machine, for tests and benchmarks, and by hand: `python -m testbench.hosts 3`."""

from testbench.hosts.cluster import Hosts, missing
from testbench.hosts.holder import Entered, wait_until
from testbench.hosts.host import Host

__all__ = ["Entered", "Host", "Hosts", "missing", "wait_until"]
