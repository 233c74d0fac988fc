"""Started processes, and the ranks below them."""
