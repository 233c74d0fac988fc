"""Containers without Docker: Dockerfiles are built and run in a small Debian."""
