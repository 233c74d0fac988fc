"""Experiments of `ranklaunch tune`: each is a `ranklaunch run` on the nodes of the job.

Node 0 decides (`coordinator`); every node starts its runs and reports their ends (`worker`). The
messages between them go over the muster. `ranklaunch.tune.search` chooses each experiment.
"""
