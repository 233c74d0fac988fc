"""Lets every Python of a rank write its stacks when it is asked by a signal, and then imports the sitecustomize that this one shadows. The
user's interpreter imports it as it starts, so it imports nothing of ranklaunch and stays with Python 3.7.

The stacks go to a file that has no name and is in memory alone, so that a process that is never asked leaves nothing. Whoever asks finds it
among the process's descriptors by what it is called, and sends nothing where it is not: so no signal ends a process, and nothing is
written into a file that has taken the descriptor's number since.
"""

import faulthandler
import os
from importlib.machinery import PathFinder
from sys import modules
from sys import path as search

NAME = "ranklaunch-stacks"
SIGNAL = 59  # a real-time signal that no library is known to use


files = []  # the descriptor


def register():
    """Anew in a process that Python has forked: or all would write into one file."""
    file = os.memfd_create(NAME)
    os.set_inheritable(file, False)
    faulthandler.register(SIGNAL, file=file, all_threads=True, chain=False)  # chain: the default would end the process
    for old in files:
        if is_ours(old):
            os.close(old)
    files[:] = [file]


def is_ours(file):
    """Whether it is such a file still: a program may have closed it, and another have its number."""
    try:
        return os.readlink(f"/proc/self/fd/{file}").startswith("/memfd:" + NAME)
    except OSError:
        return False


def the_other():
    """The sitecustomize that there would be without this one."""
    own = os.path.dirname(os.path.abspath(__file__))
    spec = PathFinder.find_spec("sitecustomize", [folder for folder in search if os.path.abspath(folder or ".") != own])
    if spec and spec.loader:
        from importlib.util import module_from_spec

        modules["sitecustomize"] = module = module_from_spec(spec)
        spec.loader.exec_module(module)


try:
    register()
    os.register_at_fork(after_in_child=register)
except (AttributeError, OSError, ValueError, RuntimeError):  # before 3.8, or where no file in memory can be had
    pass
the_other()
