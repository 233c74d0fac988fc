"""Content and writing of records: small JSON files, each whole or not at all, at most 64 KiB, without secrets."""

import os
import sys
import time

SCHEMA = "ranklaunch.record/1"
MARK = "RANKLAUNCH_RANK_HEAD"  # set for all processes below the head of a rank: "PID.START;FOLDER;...", with pid and start of the top
MOST_BYTES = 64 * 1024
FIRST, LAST = 8, 8  # exception records kept of one process: the first and the last ones
MOST_CHAIN = 8  # exceptions in one record
MOST_FRAMES = 12  # frames of the user's code in one exception: the innermost ones
MOST_MESSAGE, MOST_PATH, MOST_NAME = 4096, 400, 200  # characters
MOST_WORDS, MOST_WORD = 32, 400  # words of a command line, and characters of a word
# Each secret that redact.hide knows contains one of these texts: without one of them, the slow search is skipped.
STEMS = (
    "secret", "pass", "pwd", "token", "key", "auth", "cred", "jwt", "cookie", "bearer", "://", "hf_", "sk-", "_live_", "ghp_", "gho_",
    "ghs_", "ghr_", "ghu_", "github_pat_", "glpat-", "gldt-", "glrt-", "npm_", "nvapi-", "aiza", "pypi-ag", "xox", "akia", "asia", "eyj",
    *(before + word for before in "_-." for word in ("ak", "sk", "pw")),
)  # fmt: skip

_CLOCKS = (time.time, time.monotonic)  # kept in a tuple, so that freezegun and similar tools do not replace them
_process = {}  # pid, start, and number of exception records
_folders = {}  # folder of this node's records, by pid


def forget_process():
    """Forget the identity of the parent. Called in a forked child."""
    _process.clear()


def identity():
    """Return pid, start and number of exception records of this process, as a dictionary that may be changed."""
    if _process.get("pid") != os.getpid():
        _process.clear()
        _process.update(pid=os.getpid(), start=parent_and_start(os.getpid())[1], exceptions=0)
    return _process


def parent_and_start(pid):
    """Return pid of the parent and start in clock ticks since boot, (0, 0) for an ended process. Source: proc(5), /proc/PID/stat."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return int(fields[1]), int(fields[19])
    except (OSError, IndexError, ValueError):
        return 0, 0


# The three kinds


def start(folder, kind, details):
    """Write a rank or launcher record."""
    write(folder, kind, "", {**details, "python": "%d.%d.%d" % sys.version_info[:3]})


def exception(folder, where, value, traceback, thread=""):
    """Write a record of an uncaught exception. where: main, thread, or process for a child of multiprocessing."""
    process = identity()
    process["exceptions"] += 1
    number = process["exceptions"]
    if number > FIRST + LAST:  # the last ones overwrite each other in turn
        number = FIRST + 1 + (number - FIRST - 1) % LAST
    details = {"from": where, "thread": thread or _thread(), "number": process["exceptions"], "chain": chain(value, traceback)}
    in_handler_of = signal_handled(traceback) if where == "main" else None
    write(folder, "exception", "-%d" % number, {**details, "signal": in_handler_of, "top": top(folder)})


def signal_handled(traceback):
    """Return the number of the signal in whose handler an exception was raised, None for none."""
    import _signal as signal  # the user's code may have a module called signal

    code = set()
    while traceback is not None:
        code.add(traceback.tb_frame.f_code)
        traceback = traceback.tb_next
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        handler = signal.getsignal(number)
        function = getattr(handler, "__func__", handler)
        if getattr(function, "__code__", None) in code:
            return int(number)
    return None


def top(folder):
    """Return pid and start of the topmost process of this rank; None outside a rank. folder: value of RANKLAUNCH_RECORDS_DIR, which the
    mark contains."""
    process, _, rest = os.environ.get(MARK, "").partition(";")
    pid, _, start = process.partition(".")
    is_own = (rest + ";").startswith(folder + ";") and pid.isdigit() and start.isdigit()
    return {"pid": int(pid), "start": int(start)} if is_own else None


def exit(folder, value, code):
    """Write a launcher's exit record. value: the SystemExit, None without one. code: its argument; an exit with a text has code 1."""
    text, number = "", 1
    if code is None:
        number = 0
    elif isinstance(code, int):
        number = code & 0xFF
    else:
        text = _shown(_text(code), MOST_MESSAGE)
    handled = getattr(value, "__context__", None)
    handling = chain(handled, handled.__traceback__) if handled is not None else None
    write(folder, "exit", "", {"from": "main", "code": number, "text": text, "handling": handling})


def command(argv):
    """Return a dictionary with the words of a command line, without secrets."""
    words = [word[:MOST_WORD] for word in argv[:MOST_WORDS]]
    if _may_have_secrets(" ".join(words)):
        from . import redact

        words = redact.argv(words)
    return {"argv": words}


# Exceptions


def chain(value, traceback):
    """Return the uncaught exception, then its causes, contexts and members of groups, as dictionaries."""
    result, seen, queue = [], set(), [(value, traceback, "")]
    while queue and len(result) < MOST_CHAIN:
        value, traceback, link = queue.pop(0)
        if value is None or id(value) in seen:
            continue
        seen.add(id(value))
        result.append(_one(value, traceback, link, MOST_MESSAGE if not result else MOST_MESSAGE // 4))
        members = getattr(value, "exceptions", None)
        if isinstance(members, tuple):  # ExceptionGroup
            queue += [(each, each.__traceback__, "group") for each in members[:MOST_CHAIN] if isinstance(each, BaseException)]
        if value.__cause__ is not None:
            queue.append((value.__cause__, value.__cause__.__traceback__, "cause"))
        elif value.__context__ is not None and not value.__suppress_context__:
            queue.append((value.__context__, value.__context__.__traceback__, "context"))
    return result


def _one(value, traceback, link, most):
    kind = type(value)
    module = kind.__module__
    name = kind.__qualname__ if module in ("builtins", "__main__") else "%s.%s" % (module, kind.__qualname__)
    frames, library = _frames(traceback)
    return {"type": name[:MOST_NAME], "message": _shown(_text(value), most), "link": link, "frames": frames, "library": library}


def _text(value):
    try:
        return str(value)
    except Exception:
        return "<%s that cannot be shown as text>" % type(value).__name__


def _frames(traceback):
    """Return the frames of the user's code, the innermost last, and the last frame if it is in a library, else None."""
    own, last = [], None
    while traceback is not None:
        code = traceback.tb_frame.f_code
        last = {"file": code.co_filename[:MOST_PATH], "line": traceback.tb_lineno, "function": code.co_name[:MOST_NAME]}
        if not _is_library(code.co_filename):
            own.append(last)
        traceback = traceback.tb_next
    return own[-MOST_FRAMES:], last if last and (not own or last is not own[-1]) else None


_LIBRARIES = (
    os.path.dirname(os.__file__) + os.sep,
    *(os.path.join(prefix, *below) for prefix in (sys.prefix, sys.base_prefix) for below in (("lib", "python"), ("bin", ""))),
)


def _is_library(path):
    return "site-packages" in path or "dist-packages" in path or path.startswith(_LIBRARIES) or path.startswith(("<frozen ", "<ranklaunch"))


def _thread():
    threading = sys.modules.get("threading")
    return threading.current_thread().name if threading else "MainThread"


def _shown(text, most):
    text = text[:most]
    if _may_have_secrets(text):
        from . import redact

        text = redact.hide(text)
    return text


def _may_have_secrets(text):
    lower = text.lower()
    return any(stem in lower for stem in STEMS)


# Writing


def write(folder, kind, number, details):
    """Write one record. Raises OSError."""
    process = identity()
    folder = own_folder(folder)
    if not folder:
        return
    node = folder.rpartition("_")[2]
    value = {"schema": SCHEMA, "record": kind, "node": int(node) if node.isdigit() else 0, "host": os.uname().nodename}
    clock, monotonic = _CLOCKS
    value.update(pid=process["pid"], start=process["start"], time=clock(), monotonic=monotonic(), **details)
    data = _bounded(value)
    name = "%s-%d-%d-%d%s.json" % (kind, value["node"], process["pid"], process["start"], number)
    path, temporary = os.path.join(folder, name), os.path.join(folder, ".%s.new" % name)
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        whole = os.write(file, data) == len(data)  # a full disk writes only a part
    except OSError:
        whole = False
    os.close(file)
    if whole:
        os.replace(temporary, path)
    else:
        os.unlink(temporary)


def _bounded(value):
    data = dumps(value).encode()
    for name in ("chain", "handling"):
        while len(data) > MOST_BYTES and value.get(name):
            value[name].pop()
            data = dumps(value).encode()
    return data


def own_folder(folder):
    """Return the folder of this node's records, "" for none.

    If node 0 starts the ranks of all nodes, `folder` is "below:FOLDER": each node's ranklaunch writes a file into FOLDER, named after its
    host, pid and start, with the path of its own folder.
    """
    if not folder.startswith("below:"):
        return folder
    pid, pointers = os.getpid(), folder[len("below:") :]
    if pid not in _folders:
        _folders.clear()
        _folders[pid] = _pointed(pointers, pid)
    return _folders[pid]


def _pointed(pointers, pid):
    """Return the path in the file of the nearest ancestor that is a ranklaunch, "" without one."""
    for _ in range(64):
        pid = parent_and_start(pid)[0]
        if pid <= 0:
            return ""
        name = "%s-%d-%d" % (os.uname().nodename, pid, parent_and_start(pid)[1])
        try:
            file = os.open(os.path.join(pointers, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            if os.fstat(file).st_uid == os.getuid():
                return os.fsdecode(os.read(file, 4096))
        finally:
            os.close(file)
    return ""


def dumps(value):
    """Return a value as JSON in ASCII. Importing the package json would take longer than everything else here."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        return "%.6f" % value
    if isinstance(value, dict):
        return "{%s}" % ", ".join("%s: %s" % (_quoted(name), dumps(each)) for name, each in value.items())
    if isinstance(value, (list, tuple)):
        return "[%s]" % ", ".join(map(dumps, value))
    return _quoted(value)


def _quoted(text):
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return '"%s"' % text
    try:
        from _json import encode_basestring_ascii as quoted
    except ImportError:
        from json import dumps as quoted
    return quoted(text)
