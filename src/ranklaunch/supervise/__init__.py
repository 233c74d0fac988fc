"""Execution of a Plan: starts and stops its processes, and reports their ends."""
