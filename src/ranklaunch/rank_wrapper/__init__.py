"""Wrapper of each rank, on request: binds the rank to cores, starts a debugger, or runs a command of the user's in front."""
