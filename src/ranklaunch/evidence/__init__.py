"""Evidence of a running job: stacks, dumps of recorders, answers of tools."""
