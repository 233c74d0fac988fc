"""Recording inside a rank: its start, uncaught exceptions, the exit code of a launcher, and its stacks on request.

The user's interpreter imports this package at its start (sitecustomize.py beside the package). So the package imports nothing of
ranklaunch, runs on Python 3.7 and newer, prints nothing, and changes no exit code. This module holds the part loaded at every start.
Parts for a few processes are imported on demand: `heads` (rank and launcher records) and `records` (content and writing of files).

How an uncaught exception is seen when Python handles it, before any hook or atexit handler of the user's:

- Main thread: Python calls the object in `sys.__dict__["excepthook"]`. Our function stands there. The module `sys` gets a class with a
  property `excepthook` for the user's hook, and our function calls the hook. An audit hook on "sys.excepthook" would see
  the same, but makes `id()` three times as expensive (docs/adr/0021-rank-records.md).
- Threads: the same for the module `threading` (3.8 and newer). On 3.7, `threading._format_exc` is called for uncaught exceptions alone.
- multiprocessing children: `BaseProcess._bootstrap` catches the exception and prints the traceback by `traceback.print_exc`.
- Exit of a launcher: there, and only there, `sys.exit` raises a subclass of SystemExit. The interpreter reads its attribute `code`
  once, at the exit. In other processes `sys.exit` stays unchanged: programs compare the type, and print the traceback.

Code of this module has NAME for a file name, to keep coverage and tracebacks of the user free of our files.
"""

import os
import sys
from types import ModuleType

FOLDER = "RANKLAUNCH_RECORDS_DIR"  # where records go; no variable: no records
HEAD, PROGRAM = "RANKLAUNCH_RANK_HEAD", "program"  # at first: the program is one rank of its node, also without a rank's variables
STACKS = "RANKLAUNCH_STACKS"  # off: no handler for stacks
STACKS_FILE = "ranklaunch-stacks"  # name of the file in memory, by which ranklaunch finds it among the descriptors
SIGNAL = 59  # a real-time signal that no library is known to use

NAME = "<ranklaunch_rankside>"

folder = ""
launcher = ""  # name of the launcher that this process is
_stacks = []  # the descriptor
_started = []


def start():
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
        except Exception:  # the others may do all the same
            pass


def rename(members):
    """Give NAME as file name to the code of all functions among the members of this module, and of their classes. The other modules run
    at the start and at an uncaught exception only."""
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
    """Write all stacks into a file in memory when SIGNAL comes. Silently nothing where the handler or the file cannot be had."""
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
    """False if the program has closed the file: its number may be another file's by now."""
    try:
        return os.readlink("/proc/self/fd/%d" % file).startswith("/memfd:" + STACKS_FILE)
    except OSError:
        return False


def _after_fork():
    """A forked child has its own stacks and records, and is no launcher."""
    global launcher
    launcher = ""
    if _stacks:
        _register_stacks()
    records = sys.modules.get(__name__ + ".records")
    if records:
        records.forget_process()


# Rank and launcher records


def _record_start():
    """Look closer only where the environment or the command line says that this process may be the head of a rank, or a launcher."""
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


# One of these says which rank a process is.
INDEXES = (
    "RANK", "LOCAL_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "RANK_ID", "MS_NODE_ID", "MS_ROLE", "JAX_PROCESS_ID",
)  # fmt: skip
# Scripts and modules (python -m) that are launchers. Their name: that of the launcher.
LAUNCHERS = {
    "torchrun": "torchrun", "torch.distributed.run": "torchrun", "torch.distributed.launch": "torchrun",
    "accelerate": "accelerate", "accelerate-launch": "accelerate", "accelerate.commands.launch": "accelerate",
    "accelerate.commands.accelerate_cli": "accelerate", "deepspeed": "deepspeed", "deepspeed.pt": "deepspeed", "ds": "deepspeed",
    "deepspeed.launcher.runner": "deepspeed", "deepspeed.launcher.launch": "deepspeed", "msrun": "msrun",
    "mindspore.parallel.cluster.run": "msrun", "horovodrun": "horovodrun", "horovod.runner": "horovodrun",
    "horovod.runner.launch": "horovodrun",
}  # fmt: skip


def _record_exit_code(code, exit=None):
    """Of a launcher. The first call counts: of SystemExit, of the uncaught exception, or at exit."""
    global launcher
    if launcher:
        launcher = ""
        _write("exit", exit, code)


# Exceptions and exits


def _write(kind, *details):
    """Write a record, or nothing where that is not possible."""
    try:
        from . import records

        getattr(records, kind)(folder, *details)
    except Exception:
        pass


_HOOK = "_ranklaunch_hook"  # the user's hook in a module's dictionary
_BEFORE = "_ranklaunch_hook_before"  # the one before
_MISSING = object()  # the user has deleted the hook


class _Hooked(ModuleType):
    """A module whose `excepthook` is called by Python through its dictionary. The user sees and sets the hook that ours calls."""

    @property
    def excepthook(self):
        hook = self.__dict__[_HOOK]
        if hook is _MISSING:
            raise AttributeError("module %r has no attribute 'excepthook'" % self.__name__)
        return hook

    @excepthook.setter
    def excepthook(self, hook):
        members = self.__dict__
        if hook is members["excepthook"]:  # mock.patch has kept what stands in the dictionary: it means the hook before
            hook = members[_BEFORE]
        members[_BEFORE], members[_HOOK] = members[_HOOK], hook

    @excepthook.deleter
    def excepthook(self):
        self.__dict__[_HOOK] = _MISSING

    def __reduce__(self):
        return __import__, (self.__name__,)


class _LikeModuleType(type):
    """`type(sys)` is how importlib and others spell ModuleType: calls, isinstance, and subclasses of _Sys are those of ModuleType."""

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
    """Put `ours` where Python looks for the hook of a module, and the user's hook behind it."""
    module.__dict__[_HOOK] = module.__dict__[_BEFORE] = module.excepthook
    module.__dict__["excepthook"] = ours
    module.__class__ = kind


def _watch_main_thread():
    kept = sys.__dict__

    def excepthook(kind, value, traceback):
        _write("exception", "main", value, traceback)
        if PROCESSES in os.environ:
            _leave_jax()
        if launcher:
            _record_exit_code(130 if issubclass(kind, KeyboardInterrupt) else 1)
        hook = kept[_HOOK]
        if hook is _MISSING:  # as the interpreter does it
            sys.stderr.write("sys.excepthook is missing\n")
            hook = sys.__excepthook__
        return hook(kind, value, traceback)

    _hook(sys, _Sys, excepthook)


def _watch_threads(threading):
    if not hasattr(threading, "excepthook"):  # Python 3.7
        format_exc = threading._format_exc

        def of_uncaught(*args, **options):
            _write("exception", "thread", *sys.exc_info()[1:])
            return format_exc(*args, **options)

        threading._format_exc = of_uncaught
        return
    kept, default = threading.__dict__, threading.excepthook

    def excepthook(args):
        if not issubclass(args.exc_type, SystemExit):
            _write("exception", "thread", args.exc_value, args.exc_traceback, getattr(args.thread, "name", ""))
        hook = kept[_HOOK]
        return (default if hook is _MISSING else hook)(args)

    _hook(threading, _Threading, excepthook)


def _watch_children(traceback):
    """multiprocessing prints what nobody has caught in a child by traceback.print_exc."""
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
    """Of a launcher: a SystemExit whose `code` is read below no Python frame when the interpreter exits because of it."""
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
    """A finder that finds nothing itself: it watches modules right after they have been loaded, and leaves when all have been."""

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
        except Exception:  # Python meets it too, and reports it
            return None
        loader = spec.loader if spec else None
        if loader is None or isinstance(loader, type):  # built in or frozen: shared by all
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

JAX_CLUSTERS = "jax._src.clusters"  # a private module of JAX, whose classes find the place of a process
PROCESSES, PROCESS_ID, COORDINATOR = "JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "JAX_COORDINATOR_ADDRESS"


def _add_jax_cluster(clusters):
    """Register the place of this process with JAX, before all other classes: jax.distributed.initialize() needs no arguments then."""

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
    """Leave the job at sys.exit() with a failure, too. The handler is registered last, so it runs before that of JAX."""
    original = sys.exit

    def exit(*status):
        if any(status):
            import atexit

            atexit.register(_leave_jax)
        original(*status)

    sys.exit = exit


def _leave_jax():
    """Let this process exit without the barrier of jax.distributed.shutdown(): the other processes wait for a collective, and never come.

    JAX leaves by an atexit handler, and waits up to five minutes there. The objects stay alive, because their destructors wait too. So do
    the backends: their connections would close some seconds before the process ends, and the other processes' reaction would end this one
    first.
    """
    state = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    try:
        for name in ("preemption_sync_manager", "client", "service"):
            kept = getattr(state, name, None)
            if kept is not None:
                _keep_alive(kept)
                setattr(state, name, None)
        for kept in getattr(sys.modules.get("jax._src.xla_bridge"), "_backends", {}).values():
            _keep_alive(kept)
    except Exception:  # another JAX than those that are known
        pass


def _keep_alive(value):
    """Let an object live until its process ends."""
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
