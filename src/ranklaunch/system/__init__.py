"""The operating system as ranklaunch uses it. Nothing here knows of a plan."""
