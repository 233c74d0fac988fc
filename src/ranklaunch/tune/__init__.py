"""`ranklaunch tune`: the search for the fastest DeepSpeed configuration. The modules here compute;
`ranklaunch.tune.experiments` starts each experiment as a `ranklaunch run`. No other room imports this one.
"""
