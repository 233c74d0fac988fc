"""From the processes of an attempt to the values of ends.json."""
