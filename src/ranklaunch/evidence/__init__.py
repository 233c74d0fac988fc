"""What evidence of a running job says: stacks, dumps of recorders, answers of tools; and what its files are called."""
