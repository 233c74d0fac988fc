"""Hints about likely mistakes: a misspelt variable, options after the program, templates that nothing reads."""
