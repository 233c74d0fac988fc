"""ranklaunch tune: experiments of a search for the fastest DeepSpeed configuration, each a run of its own. Node 0 decides what is tried
(director), every node starts and ends its part of it (crew), by words over the muster; what is tried, and why, is said by
ranklaunch.tune."""
