"""Exceptions of Python itself. They count only where the program did not go on after them: see ranklaunch.catalogue.tracebacks."""

from __future__ import annotations

from ranklaunch.catalogue.entry import CAUSE, CONSEQUENCE, KnownError

ERRORS: tuple[KnownError, ...] = (
    KnownError(
        "python-module-not-found",
        r"^ModuleNotFoundError: |^ImportError: No module named",
        CAUSE,
        "The program imports a module that is not installed, or not on the module path.",
        "Install it in the image that runs the job, or correct PYTHONPATH and the working directory.",
        "https://docs.python.org/3/library/exceptions.html#ModuleNotFoundError",
    ),
    KnownError(
        "python-import-error",
        r"^ImportError: ",
        CAUSE,
        "A module is installed but could not be loaded; mostly versions do not fit each other.",
        "Install the versions that belong together.",
        "https://docs.python.org/3/library/exceptions.html#ImportError",
    ),
    KnownError(
        "python-syntax-error",
        r"^SyntaxError: |^IndentationError: |^TabError: ",
        CAUSE,
        "A file is no valid Python, or not for this version of Python.",
        "Correct the line that the traceback shows, or use a newer Python.",
        "https://docs.python.org/3/library/exceptions.html#SyntaxError",
    ),
    KnownError(
        "python-wrong-arguments",
        (
            r"^[\w./-]{1,80}: error: (?:unrecognized arguments|the following arguments are required|argument |"
            r"ambiguous option|invalid choice)"
        ),
        CAUSE,
        "The program refuses its command line.",
        "Correct the arguments after the program's name.",
        "https://docs.python.org/3/library/argparse.html",
    ),
    KnownError(
        "python-rank-not-set",
        r"^KeyError: '(?:(?:LOCAL_)?(?:RANK|WORLD_SIZE)|MASTER_(?:ADDR|PORT))'",
        CAUSE,
        "The program was started without what a launcher sets for each rank.",
        "Say the number of ranks with --slots, and choose a method that sets this for each, such as torchrun or spawn; plain sets nothing.",
        "https://docs.pytorch.org/docs/stable/elastic/run.html",
    ),
    KnownError(
        "python-debugger-without-input",
        r"^(?:bdb\.)?BdbQuit\b",
        CAUSE,
        "A debugger, such as that of breakpoint(), found nothing to read: the standard input of ranks is empty.",
        "Remove the breakpoint, or run one rank by the script that ranklaunch plan --slots 1 --method spawn --format sh prints.",
        "https://docs.python.org/3/library/pdb.html",
    ),
    KnownError(
        "python-file-not-found",
        r"^FileNotFoundError: ",
        CAUSE,
        "A file or folder does not exist in this container.",
        "Check the path and what is mounted on every node.",
        "https://docs.python.org/3/library/exceptions.html#FileNotFoundError",
    ),
    KnownError(
        "python-permission-error",
        r"^PermissionError: ",
        CAUSE,
        "The program may not do what it tries, such as write to a folder.",
        "Check owner and mode of the path, and the user of the container.",
        "https://docs.python.org/3/library/exceptions.html#PermissionError",
    ),
    KnownError(
        "python-memory-error",
        r"^(?:numpy[\w.]{1,40}\._?Array)?MemoryError\b",
        CAUSE,
        "Python found no memory on the host.",
        "Give the job more memory, or use less: fewer data loading workers, smaller batches.",
        "https://docs.python.org/3/library/exceptions.html#MemoryError",
    ),
    KnownError(
        "python-recursion-error",
        r"^RecursionError: ",
        CAUSE,
        "Functions called each other too deeply.",
        "Find the circle that the traceback shows.",
        "https://docs.python.org/3/library/exceptions.html#RecursionError",
    ),
    KnownError(
        "python-unpickling-error",
        r"^(?:_pickle|pickle|cPickle)\.UnpicklingError: ",
        CAUSE,
        "A stored object could not be read: the file is damaged, or torch.load refuses its content.",
        "Store or download it again; for files that are trusted, torch.load takes weights_only=False.",
        "https://docs.python.org/3/library/pickle.html",
    ),
    KnownError(
        "python-connection-lost",
        r"^ConnectionResetError\b|^BrokenPipeError\b|^ConnectionAbortedError\b",
        CONSEQUENCE,
        "The other end of a connection has gone: mostly its process has ended.",
        "Look at the process that was talked to, and at the rank that failed first.",
        "https://docs.python.org/3/library/exceptions.html#ConnectionResetError",
    ),
    KnownError(
        "python-connection-refused",
        r"^ConnectionRefusedError\b",
        CONSEQUENCE,
        "Nothing listens where the program connects to: the other process has ended, is late, or its address is wrong.",
        "Look at the process that was to be talked to, and at the rank that failed first.",
        "https://docs.python.org/3/library/exceptions.html#ConnectionRefusedError",
    ),
    KnownError(
        "python-process-pool-broken",
        r"^(?:concurrent\.futures\.process\.)?BrokenProcessPool\b",
        CONSEQUENCE,
        "A process that the program started for a part of its work has died.",
        "Look at that process's own output; mostly it was killed for memory.",
        "https://docs.python.org/3/library/concurrent.futures.html",
    ),
    KnownError(
        "python-interrupted",
        r"^KeyboardInterrupt\b",
        CONSEQUENCE,
        "The program was told to end (SIGINT).",
        "Look for who sent it: a person, the platform, or a launcher after a failure elsewhere.",
        "https://docs.python.org/3/library/exceptions.html#KeyboardInterrupt",
    ),
)
# What the interpreter itself says, and no exception: a shell script may go on after it.
NO_PROGRAM = KnownError(
    "python-program-not-found",
    r"(?:^|/)(?:python|pypy)[\w.-]{0,16}: (?:No module named [\w.]{1,200}|can't open file |Error while finding module specification for )",
    CAUSE,
    "The interpreter finds neither a file nor a module of the program's name.",
    "Correct the name or the path; a module must be in the image that runs the job, or in the working directory or on PYTHONPATH.",
    "https://docs.python.org/3/using/cmdline.html#cmdoption-m",
)
# Matched against the line that ends the last traceback, and no other.
UNCAUGHT = KnownError(
    "python-uncaught-exception",
    r"^[A-Za-z_]\w{0,80}(?:\.\w{1,80}){0,12}(?:: |:?$)",
    CAUSE,
    "The program ended with an exception that it did not catch.",
    "Read the traceback above the line: its last frames say where in the program it arose.",
    "https://docs.python.org/3/tutorial/errors.html",
)
