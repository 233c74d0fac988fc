"""Report of a job from the files in its log folder: `ranklaunch report`."""
