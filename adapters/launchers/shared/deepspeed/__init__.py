"""What DeepSpeed's own launcher understands: its options, its choice of nodes and devices, its files."""
