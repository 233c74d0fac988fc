"""Words of DeepSpeed's own launcher: options, choice of nodes and devices, files of variables."""
