"""Modules that several platforms share."""
