"""Wrappers of each rank on request: cores of its own, a debugger, a command of the user's."""
