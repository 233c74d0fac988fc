"""What accelerate's own configuration files say, and what the job puts into one."""
