"""What all ranks of a job have written, put into the order of time: `ranklaunch logs`. It computes; whoever asks reads the files."""
