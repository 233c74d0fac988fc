"""What launchers share."""
