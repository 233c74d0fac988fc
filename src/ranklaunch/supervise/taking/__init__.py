"""Taking evidence of a running job before its end erases it: stacks, states of processes, dumps of recorders, answers of tools."""
