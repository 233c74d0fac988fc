"""Platforms (the job, and this process's place in the job) and launchers (the start of the ranks): one module each."""
