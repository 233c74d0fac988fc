"""Version of the package: a module of its own, since modules below the package need it and may not import the API."""

__version__ = "0.2.0"
