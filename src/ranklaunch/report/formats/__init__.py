"""Formats of a report, all made from the same values. Pure: each returns text."""
