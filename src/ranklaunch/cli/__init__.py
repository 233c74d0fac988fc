"""What several commands share: their options, and what `run` and `simulate` do."""
