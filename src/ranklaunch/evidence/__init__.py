"""Evidence of a running job: stacks, dumps of flight recorders, answers of tools."""
