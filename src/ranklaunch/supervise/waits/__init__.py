"""Waiting for what must be there before launch."""
