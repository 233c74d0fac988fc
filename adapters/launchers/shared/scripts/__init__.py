"""Of a user's shell script: its commands, what they say as far as that is known before it runs, and whether it starts ranks itself."""
