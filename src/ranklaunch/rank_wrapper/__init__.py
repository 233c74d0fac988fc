"""What stands before each rank where it is asked for: cores of its own, a debugger, a command of the user's."""
