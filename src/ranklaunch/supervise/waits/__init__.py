"""Waits for files, hosts and services before the launch."""
