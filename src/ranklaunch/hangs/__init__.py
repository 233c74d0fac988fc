"""A running job, looked at from outside: whether anything of it moves."""
