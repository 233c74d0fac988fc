"""Content and writing of records: small JSON files, each whole or not at all, at most 64 KiB, without secrets."""

import os
import sys
import time

SCHEMA = "ranklaunch.record/1"
MARK = "RANKLAUNCH_RANK_HEAD"  # variable of all processes below the head of a rank: "PID.START;FOLDER;...", of the rank's top
MOST_BYTES = 64 * 1024
FIRST, LAST = 8, 8  # exception records of one process that are kept
MOST_CHAIN = 8  # exceptions of one record
MOST_FRAMES = 12  # of the user's code, the innermost ones of each exception
MOST_MESSAGE, MOST_PATH, MOST_NAME = 4096, 400, 200  # characters
MOST_WORDS, MOST_WORD = 32, 400  # of a command line
# Texts that make a closer look for secrets worth the while. All secrets that redact.hide knows contain one of these.
STEMS = (
    "secret", "pass", "pwd", "token", "key", "auth", "cred", "jwt", "cookie", "bearer", "://", "hf_", "sk-", "_live_", "ghp_", "gho_",
    "ghs_", "ghr_", "ghu_", "github_pat_", "glpat-", "gldt-", "glrt-", "npm_", "nvapi-", "aiza", "pypi-ag", "xox", "akia", "asia", "eyj",
    *(before + word for before in "_-." for word in ("ak", "sk", "pw")),
)  # fmt: skip

_CLOCKS = (time.time, time.monotonic)  # here, where no tool that stops clocks for a test looks for them
_process = {}  # pid, start, and how many exception records there are
_below = {}  # pointers to the folders of nodes, by pid


def forget_process():
    """In a forked child."""
    _process.clear()


def identity():
    if _process.get("pid") != os.getpid():
        _process.clear()
        _process.update(pid=os.getpid(), start=parent_and_start(os.getpid())[1], exceptions=0)
    return _process


def parent_and_start(pid):
    """(pid of the parent, start in clock ticks since boot), (0, 0) of a process that is gone. Source: proc(5), /proc/PID/stat."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return int(fields[1]), int(fields[19])
    except (OSError, IndexError, ValueError):
        return 0, 0


# The three kinds


def start(folder, kind, details):
    """A rank or launcher record."""
    write(folder, kind, "", {**details, "python": "%d.%d.%d" % sys.version_info[:3]})


def exception(folder, where, value, traceback, thread=""):
    """where: main, thread, or process for a child of multiprocessing."""
    process = identity()
    process["exceptions"] += 1
    number = process["exceptions"]
    if number > FIRST + LAST:  # the last ones take each other's place
        number = FIRST + 1 + (number - FIRST - 1) % LAST
    details = {"from": where, "thread": thread or _thread(), "number": process["exceptions"], "chain": chain(value, traceback)}
    in_handler_of = signal_handled(traceback) if where == "main" else None
    write(folder, "exception", "-%d" % number, {**details, "signal": in_handler_of, "top": top(folder)})


def signal_handled(traceback):
    """Return the number of the signal in whose handler an exception was raised, None for none."""
    import _signal as signal  # the module signal may be a file of the user's

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
    """Return pid and start of the topmost process of this rank; None below no rank. folder: of the records, as the mark names it."""
    process, _, rest = os.environ.get(MARK, "").partition(";")
    pid, _, start = process.partition(".")
    is_own = (rest + ";").startswith(folder + ";") and pid.isdigit() and start.isdigit()
    return {"pid": int(pid), "start": int(start)} if is_own else None


def exit(folder, value, code):
    """Of a launcher. value: the SystemExit, None where there was none. code: what it had. An exit by text has code 1."""
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
    """The words of a command line, without secrets."""
    words = [word[:MOST_WORD] for word in argv[:MOST_WORDS]]
    if _may_have_secrets(" ".join(words)):
        from . import redact

        words = redact.argv(words)
    return {"argv": words}


# Exceptions


def chain(value, traceback):
    """The exception that nobody has caught, then its causes and contexts, and the members of groups."""
    result, seen, left = [], set(), [(value, traceback, "")]
    while left and len(result) < MOST_CHAIN:
        value, traceback, link = left.pop(0)
        if value is None or id(value) in seen:
            continue
        seen.add(id(value))
        result.append(_one(value, traceback, link, MOST_MESSAGE if not result else MOST_MESSAGE // 4))
        members = getattr(value, "exceptions", None)
        if isinstance(members, tuple):  # ExceptionGroup
            left += [(each, each.__traceback__, "group") for each in members[:MOST_CHAIN] if isinstance(each, BaseException)]
        if value.__cause__ is not None:
            left.append((value.__cause__, value.__cause__.__traceback__, "cause"))
        elif value.__context__ is not None and not value.__suppress_context__:
            left.append((value.__context__, value.__context__.__traceback__, "context"))
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
    """(frames of the user's code, the innermost last; the last frame where that is a library's)."""
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
        whole = os.write(file, data) == len(data)  # a full disk takes a part
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
    """The folder of records of this node. "below:FOLDER" stands where node 0 starts the ranks of all nodes: each node's ranklaunch leaves
    a file in FOLDER, named after its host, pid and start, with the path in it."""
    if not folder.startswith("below:"):
        return folder
    pid, pointers = os.getpid(), folder[len("below:") :]
    if pid not in _below:
        _below.clear()
        _below[pid] = _pointed(pointers, pid)
    return _below[pid]


def _pointed(pointers, pid):
    """Look for the file of the nearest ancestor that is a ranklaunch."""
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
    """JSON in ASCII. The package json would take more time to import than all the rest."""
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
