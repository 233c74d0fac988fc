"""Recording inside a rank: its start, uncaught exceptions, the exit code of a launcher, and its stacks on request.

The user's interpreter imports this package at its start (sitecustomize.py beside the package). So the package imports nothing of
ranklaunch, runs on Python 3.7 and newer, prints nothing, and changes no exit code. This module is loaded at every start. Parts that
only some processes need are imported on demand: `heads` (rank and launcher records) and `records` (content and writing of files).

An uncaught exception is recorded when Python handles it, before any hook or atexit handler of the user:

- Main thread: Python calls the object in `sys.__dict__["excepthook"]`, which is our function. The module `sys` gets a class with a
  property `excepthook` for the user's hook, and our function calls this hook. An audit hook on "sys.excepthook" would work
  too, but makes `id()` three times as expensive (docs/adr/0021-rank-records.md).
- Threads: the same for the module `threading` (3.8 and newer). On 3.7, `threading._format_exc` is only called for uncaught exceptions.
- multiprocessing children: `BaseProcess._bootstrap` catches the exception, and prints the traceback by `traceback.print_exc`.
- Exit of a launcher: `sys.exit` raises a subclass of SystemExit, whose attribute `code` the interpreter reads once, at the exit. In other
  processes `sys.exit` is unchanged: programs compare the type, and print the traceback.

The file name of this module's code is NAME, to keep our files out of the user's coverage and tracebacks.
"""

import os
import sys
from types import ModuleType

FOLDER = "RANKLAUNCH_RECORDS_DIR"  # folder of the records; without this variable nothing is recorded
HEAD, PROGRAM = "RANKLAUNCH_RANK_HEAD", "program"  # "program": the program is a rank, even without a rank number in its variables
STACKS = "RANKLAUNCH_STACKS"  # off: no handler for stacks
STACKS_FILE = "ranklaunch-stacks"  # name of the memfd, by which ranklaunch finds it among the descriptors
SIGNAL = 59  # a real-time signal that no library is known to use

NAME = "<ranklaunch_rankside>"

folder = ""
launcher = ""  # name of the launcher, if this process is one
_stacks = []  # descriptor of the memfd
_started = []


def start():
    """Start the recording of this process. A second call does nothing."""
    global folder
    if _started:
        return
    _started.append(True)
    rename(globals())
    if os.environ.get(STACKS) != "off":
        _register_stacks()
    os.register_at_fork(after_in_child=_after_fork)
    folder = os.environ.get(FOLDER, "")
    steps = (_record_start, _watch_main_thread) if folder else ()
    for step in (*steps, _watch_imports):
        try:
            step()
        except Exception:  # the other steps may still succeed
            pass


def rename(members):
    """Set NAME as file name in the code of all functions and methods of this module. Code of the other modules runs only at the start
    and after an uncaught exception, so it keeps its file names."""
    objects = list(members.values())
    objects += [each for kind in objects if isinstance(kind, type) and kind.__module__ == __name__ for each in vars(kind).values()]
    objects += [each for pair in objects if isinstance(pair, property) for each in (pair.fget, pair.fset, pair.fdel)]
    for each in objects:
        if isinstance(each, type(rename)) and each.__module__.startswith(__name__):
            each.__code__ = _renamed(each.__code__)


def _renamed(code):
    if not hasattr(code, "replace"):  # Python 3.7
        return code
    constants = tuple(_renamed(each) if isinstance(each, type(code)) else each for each in code.co_consts)
    return code.replace(co_filename=NAME, co_consts=constants)


# Stacks


def _register_stacks():
    """Register a handler that writes all stacks into a memfd on SIGNAL. Does nothing if the handler or the memfd is not available."""
    try:
        import faulthandler

        file = os.memfd_create(STACKS_FILE)  # Python 3.8
        os.set_inheritable(file, False)
        faulthandler.register(SIGNAL, file=file, all_threads=True, chain=False)  # chain: the default would end the process
    except (AttributeError, OSError, ValueError, RuntimeError, ImportError):
        return
    for old in _stacks:
        if _is_stacks_file(old):
            os.close(old)
    _stacks[:] = [file]


def _is_stacks_file(file):
    """Return False if the program has closed the file: another file may have the same descriptor by now."""
    try:
        return os.readlink("/proc/self/fd/%d" % file).startswith("/memfd:" + STACKS_FILE)
    except OSError:
        return False


def _after_fork():
    """Reset the state in a forked child: it has its own stacks and records, and is no launcher."""
    global launcher
    launcher = ""
    if _stacks:
        _register_stacks()
    records = sys.modules.get(__name__ + ".records")
    if records:
        records.forget_process()


# Rank and launcher records


def _record_start():
    """Write the records of a rank head or a launcher. Only the environment and the command line are checked in other processes."""
    global launcher
    try:
        with open("/proc/self/cmdline", "rb") as file:
            argv = os.fsdecode(file.read()).split("\0")[:-1]
    except OSError:
        return
    index = any(name in os.environ for name in INDEXES)
    if index or os.environ.get(HEAD) == PROGRAM or any(word.rpartition("/")[2] in LAUNCHERS for word in argv[1:8]):
        from . import heads

        launcher = heads.record_start(argv, index)
        if launcher:
            import atexit

            atexit.register(_record_exit_code, 0)
            _watch_exit()


# Variables that launchers set for ranks: one is enough.
INDEXES = (
    "RANK", "LOCAL_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "RANK_ID", "MS_NODE_ID", "MS_ROLE", "JAX_PROCESS_ID",
)  # fmt: skip
# Scripts and modules (python -m) of launchers, with the name of the launcher.
LAUNCHERS = {
    "torchrun": "torchrun", "torch.distributed.run": "torchrun", "torch.distributed.launch": "torchrun",
    "accelerate": "accelerate", "accelerate-launch": "accelerate", "accelerate.commands.launch": "accelerate",
    "accelerate.commands.accelerate_cli": "accelerate", "deepspeed": "deepspeed", "deepspeed.pt": "deepspeed", "ds": "deepspeed",
    "deepspeed.launcher.runner": "deepspeed", "deepspeed.launcher.launch": "deepspeed", "msrun": "msrun",
    "mindspore.parallel.cluster.run": "msrun", "horovodrun": "horovodrun", "horovod.runner": "horovodrun",
    "horovod.runner.launch": "horovodrun",
}  # fmt: skip


def _record_exit_code(code, exit=None):
    """Record the exit code of a launcher. Only the first call counts: by SystemExit, an uncaught exception, or atexit."""
    global launcher
    if launcher:
        launcher = ""
        _write("exit", exit, code)


# Exceptions and exits


def _write(kind, *details):
    """Write a record, if possible."""
    try:
        from . import records

        getattr(records, kind)(folder, *details)
    except Exception:
        pass


_HOOK = "_ranklaunch_hook"  # the user's hook in a module's dictionary
_BEFORE = "_ranklaunch_hook_before"  # the user's previous hook
_MISSING = object()  # the user's hook after its deletion


class _Hooked(ModuleType):
    """Module whose `excepthook` Python calls through its dictionary. The user reads and sets the hook that our function calls."""

    @property
    def excepthook(self):
        hook = self.__dict__[_HOOK]
        if hook is _MISSING:
            raise AttributeError("module %r has no attribute 'excepthook'" % self.__name__)
        return hook

    @excepthook.setter
    def excepthook(self, hook):
        members = self.__dict__
        if hook is members["excepthook"]:  # mock.patch restores the value in the dictionary, our function: the user means the previous hook
            hook = members[_BEFORE]
        members[_BEFORE], members[_HOOK] = members[_HOOK], hook

    @excepthook.deleter
    def excepthook(self):
        self.__dict__[_HOOK] = _MISSING

    def __reduce__(self):
        return __import__, (self.__name__,)


class _LikeModuleType(type):
    """Metaclass that makes _Sys behave like ModuleType in calls, isinstance and subclassing: importlib and others write `type(sys)` for
    ModuleType."""

    def __new__(mcs, name, bases, members, **options):
        if name == "_Sys" and bases == (_Hooked,):
            return super().__new__(mcs, name, bases, members)
        bases = tuple(ModuleType if base is _Sys else base for base in bases)
        kind = max((type(base) for base in bases), key=lambda kind: len(kind.__mro__))
        return kind(name, bases, members, **options)

    def __call__(cls, *args, **options):
        return ModuleType(*args, **options)

    def __instancecheck__(cls, value):
        return isinstance(value, ModuleType)

    def __subclasscheck__(cls, kind):
        return issubclass(kind, ModuleType)


class _Sys(_Hooked, metaclass=_LikeModuleType):
    pass


class _Threading(_Hooked):
    pass


def _hook(module, kind, ours):
    """Set `ours` as the hook of a module for Python, and keep the user's hook for `ours` to call."""
    module.__dict__[_HOOK] = module.__dict__[_BEFORE] = module.excepthook
    module.__dict__["excepthook"] = ours
    module.__class__ = kind


def _watch_main_thread():
    members = sys.__dict__

    def excepthook(kind, value, traceback):
        _write("exception", "main", value, traceback)
        if PROCESSES in os.environ:
            _leave_jax()
        if launcher:
            _record_exit_code(130 if issubclass(kind, KeyboardInterrupt) else 1)
        hook = members[_HOOK]
        if hook is _MISSING:  # as the interpreter does
            sys.stderr.write("sys.excepthook is missing\n")
            hook = sys.__excepthook__
        return hook(kind, value, traceback)

    _hook(sys, _Sys, excepthook)


def _watch_threads(threading):
    if not hasattr(threading, "excepthook"):  # Python 3.7
        format_exc = threading._format_exc

        def format_uncaught(*args, **options):
            _write("exception", "thread", *sys.exc_info()[1:])
            return format_exc(*args, **options)

        threading._format_exc = format_uncaught
        return
    members, default = threading.__dict__, threading.excepthook

    def excepthook(args):
        if not issubclass(args.exc_type, SystemExit):
            _write("exception", "thread", args.exc_value, args.exc_traceback, getattr(args.thread, "name", ""))
        hook = members[_HOOK]
        return (default if hook is _MISSING else hook)(args)

    _hook(threading, _Threading, excepthook)


def _watch_children(traceback):
    """Record uncaught exceptions of multiprocessing children, which multiprocessing prints by traceback.print_exc."""
    original = traceback.print_exc

    def print_exc(*args, **options):
        caller = sys._getframe(1)
        if caller.f_code.co_name == "_bootstrap" and caller.f_globals.get("__name__") == "multiprocessing.process":
            _write("exception", "process", *sys.exc_info()[1:])
        return original(*args, **options)

    print_exc.__doc__, print_exc.__module__ = original.__doc__, original.__module__
    print_exc.__qualname__, print_exc.__wrapped__ = original.__qualname__, original
    traceback.print_exc = print_exc


def _watch_exit():
    """Record the exit code of a launcher, by a subclass of SystemExit: at the exit, the interpreter reads its `code` outside any Python
    frame."""
    of_system_exit = SystemExit.code

    class Exit(SystemExit):
        __module__ = "builtins"

        @property
        def code(self):
            code = of_system_exit.__get__(self)
            try:
                sys._getframe(1)
            except ValueError:
                _record_exit_code(code, self)
            return code

        @code.setter
        def code(self, code):
            of_system_exit.__set__(self, code)

        def __reduce__(self):
            return SystemExit, self.args

    def exit(*status):
        if len(status) > 1 or (status and isinstance(status[0], SystemExit)):
            original(*status)
        raise Exit(*(status[0] if status and isinstance(status[0], tuple) else status))

    original = sys.exit
    Exit.__name__ = Exit.__qualname__ = "SystemExit"
    sys.exit = exit


class _Imports:
    """Import finder that calls a function for each wanted module right after its load, and removes itself after the last one.

    wanted: the functions, by module name. The modules themselves come from the other finders.
    """

    def __init__(self, wanted):
        self.wanted = wanted

    def find_spec(self, name, path=None, target=None):
        watch = self.wanted.pop(name, None)
        if not watch:
            return None
        if not self.wanted:
            sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]
        try:
            specs = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not self)
            spec = next(filter(None, specs), None)
        except Exception:  # Python itself gets the same exception, and reports it
            return None
        loader = spec.loader if spec else None
        if loader is None or isinstance(loader, type):  # loaders of built-in and frozen modules are shared
            return spec
        load = loader.exec_module

        def exec_module(module):
            del loader.exec_module
            load(module)
            try:
                watch(module)
            except Exception:
                pass

        loader.exec_module = exec_module
        return spec


# JAX

JAX_CLUSTERS = "jax._src.clusters"  # private module of JAX, whose classes find out rank and coordinator of a process
PROCESSES, PROCESS_ID, COORDINATOR = "JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "JAX_COORDINATOR_ADDRESS"


def _add_jax_cluster(clusters):
    """Register a cluster class with JAX, before all others, so that jax.distributed.initialize() needs no arguments."""

    class RanklaunchCluster(clusters.ClusterEnv):
        name = "ranklaunch"

        @classmethod
        def is_env_present(cls):
            return all(os.environ.get(name) for name in (PROCESSES, PROCESS_ID, COORDINATOR))

        @classmethod
        def get_coordinator_address(cls, *args, **options):
            return os.environ[COORDINATOR]

        @classmethod
        def get_process_count(cls):
            return int(os.environ[PROCESSES])

        @classmethod
        def get_process_id(cls):
            return int(os.environ[PROCESS_ID])

    known = clusters.ClusterEnv._cluster_types
    known.remove(RanklaunchCluster)
    known.insert(0, RanklaunchCluster)
    _leave_jax_at_failing_exit()


def _leave_jax_at_failing_exit():
    """Leave the job at a failing sys.exit() too. The atexit handler is registered last, so it runs before JAX's handler."""
    original = sys.exit

    def exit(*status):
        if any(status):
            import atexit

            atexit.register(_leave_jax)
        original(*status)

    sys.exit = exit


def _leave_jax():
    """Let this process exit without the barrier of jax.distributed.shutdown(): the other processes wait in a collective, and never reach
    the barrier.

    JAX's atexit handler would wait there for up to five minutes. The objects are kept alive, because their destructors wait too. The
    backends are kept alive as well: their connections would close some seconds before the end of this process, and the reaction of the
    other processes would end it first.
    """
    state = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    try:
        for name in ("preemption_sync_manager", "client", "service"):
            value = getattr(state, name, None)
            if value is not None:
                _keep_alive(value)
                setattr(state, name, None)
        for backend in getattr(sys.modules.get("jax._src.xla_bridge"), "_backends", {}).values():
            _keep_alive(backend)
    except Exception:  # an unknown version of JAX
        pass


def _keep_alive(value):
    """Keep an object alive until the end of the process."""
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))


def _watch_imports():
    wanted = {"threading": _watch_threads, "traceback": _watch_children} if folder else {}
    if PROCESSES in os.environ and PROCESS_ID in os.environ:
        wanted[JAX_CLUSTERS] = _add_jax_cluster
    for name in list(wanted):
        if name in sys.modules:
            wanted.pop(name)(sys.modules[name])
    if wanted:
        sys.meta_path.insert(0, _Imports(wanted))
