"""Version of the package, in a module of its own: modules that may not import the API need it too."""

__version__ = "0.2.0"
