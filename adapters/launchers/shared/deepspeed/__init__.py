"""Options of DeepSpeed's launcher, its choice of nodes and devices, and its files of variables."""
