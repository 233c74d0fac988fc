"""`ranklaunch logs`: finds the logs of a job in a folder, reads them, and stays with those that grow."""
