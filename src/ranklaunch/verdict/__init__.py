"""Verdict of a job: values, rules (blame), events, and messages between nodes."""
