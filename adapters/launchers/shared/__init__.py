"""Modules that several launchers share."""
