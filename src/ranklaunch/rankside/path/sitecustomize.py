"""Start the recording of this Python process, then run the sitecustomize that this file shadows.

Every Python interpreter of a rank imports this file at its start, because ranklaunch puts this folder at the front of
PYTHONPATH. So the file imports nothing of ranklaunch, fails silently, and uses only syntax that is valid in Python 2.7.
"""

import os
import sys
from sys import path as folders


def _record():
    if sys.version_info >= (3, 7) and sys.implementation.name == "cpython":
        try:
            import ranklaunch_rankside

            ranklaunch_rankside.start()
        except Exception:  # an error here must not disturb the user's program
            pass


def _run_shadowed():
    """Import the sitecustomize that Python would find without this folder. Python reports its exceptions as usual."""
    own = os.path.dirname(os.path.abspath(__file__))
    search = [folder for folder in folders if os.path.abspath(folder or ".") != own]
    if sys.version_info < (3, 5):
        import imp

        try:
            shadowed = imp.find_module("sitecustomize", search)
        except ImportError:
            return
        imp.load_module("sitecustomize", *shadowed)
        return
    # These two modules are part of every interpreter; importlib would have to be imported.
    import _frozen_importlib
    import _frozen_importlib_external

    spec = _frozen_importlib_external.PathFinder.find_spec("sitecustomize", search)
    if spec and spec.loader:
        module = _frozen_importlib.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


_record()
_run_shadowed()
