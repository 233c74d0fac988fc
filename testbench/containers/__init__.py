"""Containers without Docker: what Dockerfiles say is done in a small Debian."""
