"""Starting a process: its environment, where its program is, and what becomes of the fork."""

from __future__ import annotations

import errno
import json
import os
import re
import resource  # os.wait4, too, imports it at its first call, for which there may be no descriptor left by then
from collections.abc import Mapping

from ranklaunch.env.job import Job
from ranklaunch.env.settings import OUTER_RUN
from ranklaunch.errors import SHORTAGES, ConfigError, MissingProgramError, WaitError, refused
from ranklaunch.files import absolute
from ranklaunch.plan.model import Plan, Process
from ranklaunch.showing import clipped
from ranklaunch.system import tree
from ranklaunch.system.disk import DiskFiles, working_folder
from ranklaunch.system.signals import Signals, block, unblock

MARK = OUTER_RUN
CANNOT_EXECUTE = 126  # as shells say it
BLANKS = b" \n"
# Options of mpirun by which it looks for programs where this module does not.
_ELSEWHERE = frozenset(f"{dash}{name}" for dash in ("-", "--") for name in ("wd", "wdir", "path"))
# Of open files: what ranks get, whatever ranklaunch needs for itself.
INHERITED_LIMIT = resource.getrlimit(resource.RLIMIT_NOFILE)


def environment(process: Process, inherited: Mapping[str, str]) -> dict[str, str]:
    gone = set(process.unset)
    return {**{name: value for name, value in inherited.items() if name not in gone}, **process.env}


def marked(env: Mapping[str, str], job: str, logs: str, attempt: str) -> dict[str, str]:
    """An environment that says which process, of this host, runs what has it; for which job, and into which folders. See
    ranklaunch.supervise.nested."""
    own = tree.identify(os.getpid())
    return {**env, MARK: json.dumps([own.pid, own.start, job, logs, attempt])}


def executable(process: Process, env: Mapping[str, str]) -> str:
    """Path of the process's program. Raises MissingProgramError that says where it was looked for."""
    hint = f"; {process.comes_with}" if process.comes_with else ""
    path = _found(process.argv[0], process, env, hint)
    _refuse_rival(process, path)
    _refuse_older(process, path)
    _require_others(process, env)
    return path


def require_below(process: Process, job: Job, env: Mapping[str, str]) -> None:
    """Raises MissingProgramError where the user's executable, which this launcher is to start as ranks, is not there. It would find that
    out itself, once it has loaded all that it needs, and end with a code of its own."""
    program = job.program
    own, words = process.argv[: -len(program.words)], process.argv[-len(program.words) :]
    here = bool(job.node.slots) and not job.is_idle and bool(process.behaviour) and not os.path.isabs(process.template)
    if here and words == program.words and not (program.is_python or program.is_shell or _ELSEWHERE & {*own}):
        _found(program.path, process, env, "; it is what the ranks are to run")


def _found(name: str, process: Process, env: Mapping[str, str], hint: str) -> str:
    """The path of an executable. hint: what else is said where there is none."""
    folders = [""] if "/" in name else [folder for folder in env.get("PATH", os.defpath).split(":") if folder]
    denied = ""
    for folder in folders:
        path = os.path.join(process.cwd or "", folder, name)
        if os.path.isfile(path):
            if os.access(path, os.X_OK):
                return path
            denied = path
    if denied:
        msg = f"{denied} is not executable (files from object storage lose that mark): chmod +x it, or start it through its interpreter"
        raise MissingProgramError(msg)
    if "/" in name and _may_not_be_reached(os.path.join(process.cwd or "", name)):
        msg = f"{process.name}: {name} may not be reached by user id {os.geteuid()}: a folder above it denies that"
        raise MissingProgramError(msg)
    if "/" in name and os.path.isdir(os.path.join(process.cwd or "", name)):
        msg = f"{process.name}: program {name!r} is a folder"
        raise MissingProgramError(msg)
    where = f"on PATH={clipped(env.get('PATH', ''))!r}" if "/" not in name else f"from {process.cwd or working_folder()}"
    msg = f"{process.name}: program {name!r} not found {where}{hint}"
    raise MissingProgramError(msg)


def _may_not_be_reached(path: str) -> bool:
    try:
        os.stat(path)
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def _require_others(process: Process, env: Mapping[str, str]) -> None:
    """What it starts itself, by its name or its path."""
    for name, comes_with in process.needs:
        search = env.get("PATH", os.defpath)
        paths = [os.path.join(process.cwd or "", folder, name) for folder in ([""] if "/" in name else search.split(":"))]
        if not any(os.path.isfile(path) and os.access(path, os.X_OK) for path in paths):
            msg = f"{process.name}: it starts {clipped(name)!r}, which is not found on PATH={clipped(search)!r}; {comes_with}"
            raise MissingProgramError(msg)


def _refuse_rival(process: Process, path: str) -> None:
    """A template of the user's may be written for it."""
    if not process.rival or os.path.isabs(process.template):
        return
    name, what = process.rival
    if os.path.basename(os.path.realpath(path)) == name:
        msg = f"{process.name}: {path} is {what}: put the folder of the other first on PATH; {process.comes_with}"
        raise MissingProgramError(msg)


def _refuse_older(process: Process, path: str) -> None:
    """By what pip has left beside the program: nothing is imported, and what says no version is taken."""
    if not process.least:
        return
    from ranklaunch.plan import facts  # few programs have an oldest version

    package, least = process.least
    version = facts.beside(DiskFiles(), absolute(path, working_folder())).get(package, "")
    if version and facts.is_older(version, least):
        msg = f"{process.name}: {package} {version}, to which {path} belongs, is too old: {least} or newer is needed; {process.comes_with}"
        raise MissingProgramError(msg)


def lift_limit(files: int) -> None:
    """So many more open files for ranklaunch itself, as far as it may; ranks get what it was given."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY:
        wanted = soft + files
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))


def require_program(plan: Plan, root: str = "") -> None:
    """Raises MissingProgramError where the user's program is not there. root: a folder below which the container's files are."""
    program = plan.job.program
    if plan.job.is_idle:
        return
    path = absolute(program.path, working_folder())
    is_file = program.is_python or program.is_shell
    if not program.module and is_file and not os.path.exists(f"{root}{path}" if root else program.path):
        below = f", below {root}" if root else ""
        told = "; it has a space in it: no quotes stand around a whole command, and in values its arguments are args"
        msg = f"program {program.path!r}: no such file (looked for from {working_folder()}{below}){told if ' ' in program.path else ''}"
        raise MissingProgramError(msg)


def start(process: Process, path: str, env: dict[str, str], output: int, signals: Signals, *, repeats: bool = False) -> tree.Identity:
    """Fork and execute. output: the pipe end that becomes its stdout and stderr; the caller closes it. repeats: its stdout is thrown
    away."""
    parent = os.getpid()
    block()  # until the child has its own handlers, a signal to it would be written into our pipe
    try:
        pid = os.fork()
        if pid == 0:
            _become(process, path, env, output, signals, parent, repeats)
    finally:
        unblock()
    return tree.identify(pid)


def _why(path: str, error: BaseException) -> str:
    number = error.errno if isinstance(error, OSError) else None
    if number in (errno.ENOENT, errno.EACCES):
        return hindrance(path) or str(error)
    first = _first_line(path) if number == errno.ENOEXEC else b""
    return str(error) if not first or first.startswith(b"\x7fELF") else "its first line does not say what runs it, such as #!/bin/sh"


def hindrance(path: str) -> str:
    """Why the kernel would not run a script that is executable: the interpreter in its first line is not there, or not for this user, as
    where an environment was made by root or moved. "" where nothing of that kind is seen."""
    first = _first_line(path)
    named = first[2:].strip(BLANKS)
    interpreter = os.fsdecode(re.split(rb"[ \t]", named)[0])
    if not first.startswith(b"#!") or not os.path.isabs(interpreter) or os.access(interpreter, os.X_OK):
        return ""
    if not os.path.exists(interpreter) and not _may_not_be_reached(interpreter):
        # Quoted, so that the carriage return of a file from Windows is seen.
        return f"its first line names an interpreter that is not there: {os.fsdecode(named)!r}"
    return f"its first line names an interpreter that user id {os.geteuid()} may not execute: {os.fsdecode(named)!r}"


def _first_line(path: str) -> bytes:
    """Empty where it may only be executed."""
    try:
        with open(path, "rb") as file:
            return file.readline(256) or b"\n"
    except OSError:
        return b""


def _become(process: Process, path: str, env: dict[str, str], output: int, signals: Signals, parent: int, repeats: bool) -> None:
    """In the child: never returns."""
    code = ConfigError.exit_code
    try:
        os.dup2(output, 2)  # first, so that what fails after it is in this process's log
        os.setpgid(0, 0)
        tree.die_with_parent()
        if os.getppid() != parent:  # it died before the line above
            os._exit(CANNOT_EXECUTE)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(os.open(os.devnull, os.O_WRONLY) if repeats else output, 1)
        if process.cwd:
            os.chdir(process.cwd)
        signals.to_default()
        resource.setrlimit(resource.RLIMIT_NOFILE, INHERITED_LIMIT)
        unblock()
        code = CANNOT_EXECUTE
        os.execve(path, process.argv, env)
    except BaseException as error:
        code, text = _failed(path, error, code)
        os.write(2, f"ranklaunch: {text}\n".encode(errors="backslashreplace"))
    finally:
        os._exit(code)


def _failed(path: str, error: BaseException, code: int) -> tuple[int, str]:
    """With which code a process ends that did not become its program, and what it says. code: what stands for all but a shortage."""
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in SHORTAGES):
        return WaitError.exit_code, str(refused(error, f" to start {path}"))
    if code == CANNOT_EXECUTE:
        return code, f"cannot execute {path}: {_why(path, error)}"
    return code, f"cannot start {path}: {error}"
