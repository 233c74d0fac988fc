"""Configuration files of accelerate: reading, and merging with the job."""
