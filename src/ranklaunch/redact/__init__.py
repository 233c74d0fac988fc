"""Hiding of secrets: in plans, commands and environments by `redact`, in output and messages by `lines`."""
