"""Diagnosis: the ends of processes become suspects. Pure functions with lists of named rules; the
first matching rule decides."""
