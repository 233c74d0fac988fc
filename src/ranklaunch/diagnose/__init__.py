"""From the ends of processes to suspects: pure functions, each a list of named rules. The first
matching rule decides."""
