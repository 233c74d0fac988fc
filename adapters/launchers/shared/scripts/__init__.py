"""A user's shell script: its commands, as far as they are known before it runs, and those of them that start ranks."""
