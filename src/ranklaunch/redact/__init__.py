"""Secrets, and what is shown without them: plans and environments by `redact`, what processes wrote and reasons by `said`."""
