"""Interfaces to the operating system. Independent of plans."""
