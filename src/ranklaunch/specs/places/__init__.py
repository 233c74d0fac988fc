"""Specifications for clouds, and scripts for batch systems other than Slurm."""
