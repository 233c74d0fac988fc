"""ranklaunch: the one container ENTRYPOINT for distributed training."""

__version__ = "0.2.0"
