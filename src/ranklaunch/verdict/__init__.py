"""What happened: as values, and who is to blame."""
