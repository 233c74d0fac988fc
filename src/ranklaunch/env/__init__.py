"""From an environment and files to a Job."""
