"""A job that runs, as it is seen from outside: its steps, its life, and whoever holds it up."""
