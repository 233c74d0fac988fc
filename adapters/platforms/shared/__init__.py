"""What platforms share."""
