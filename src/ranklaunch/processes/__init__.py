"""The processes that are started, and the ranks below them."""
