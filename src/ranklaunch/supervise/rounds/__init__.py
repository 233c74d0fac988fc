"""Between two rounds: what a failed one has brought, what is decided by it, and what it leaves behind."""
