"""Shared parts of commands: their options, and the work of `run` and `simulate`."""
