"""What follows a round that has failed: whether all ranks start again, and why not. Pure."""
