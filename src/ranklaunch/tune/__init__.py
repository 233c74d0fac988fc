"""`ranklaunch tune`: search for the fastest DeepSpeed configuration. The modules of this package only compute;
`ranklaunch.tune.experiments` starts each experiment as a `ranklaunch run`. No other package imports this one.
"""
