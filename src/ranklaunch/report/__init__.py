"""What happened in a job, from what its nodes have left on the disk: `ranklaunch report`."""
