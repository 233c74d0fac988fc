"""Watch of a running job from outside: hangs, slow steps, and broken expectations about its output."""
