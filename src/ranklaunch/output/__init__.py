"""What processes write: read, told apart, stored and shown."""
