"""Analysis of a user's shell script: its commands, as far as known before the run, and the commands that start ranks."""
