"""Files of an attempt: plan.json, events.jsonl, verdict.json, and the termination message that
Kubernetes shows."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Mapping
from typing import Any

from ranklaunch.errors import SHORTAGES, ConfigError, RanklaunchError, WaitError, refused
from ranklaunch.system import disk
from ranklaunch.verdict import folders
from ranklaunch.verdict.model import Judgement, Verdict, as_json

RUN_IDS = "run_ids.json"  # in the log folder
RESERVE = ".reserved"
RESERVED = 128 * 1024  # bytes
MOST_OFFERED = 4096  # characters
MOST_COPIED = 1024 * 1024
MOST_SHOWN = 64 * 1024  # bytes
MOST_IDS, ID_LENGTH = 10_000, 16  # run ids kept in one log folder (the newest), and characters of each
MOST_OF_IDS = 8 * 1024 * 1024  # bytes
LOCK_S = 2.0
TERMINATION_BYTES = 4096  # Kubernetes reads no more
_BROKEN = (errno.EROFS, errno.EIO, errno.ESTALE, errno.ENOTCONN)  # errors of a file system, or of the network to it

will = -1  # write end of the pipe to the guardian, for facts needed after a kill of the supervisor


def now() -> str:
    """Return the time in UTC, ISO 8601."""
    seconds, microseconds = divmod(time.time_ns() // 1000, 1_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{microseconds:06d}+00:00"


class Record:
    """Folder of one attempt, or of a restart in place. Logs and events of an earlier start in the same
    folder are kept: new ones are appended.

    attempt: for a restart in place, the folder of its attempt. failure: error because of which the
    attempt or restart cannot begin. trouble: files that cannot be kept, with reasons; reported with
    the trouble of the logs.
    """

    def __init__(self, folder: str, termination_log: str = "", failure_file: str = "", attempt: str = "") -> None:
        self.folder = folder
        self._attempt = attempt
        self._failure_file = failure_file
        self._termination_log = termination_log
        self._events = -1
        self._spare = -1
        self._held: bytes | None = None
        self.trouble: list[str] = []
        self.failure: RanklaunchError | None = None

    def require(self) -> None:
        """Raise the error with which the folder could not be opened."""
        if self.failure:
            raise self.failure

    def of_attempt(self, failure: RanklaunchError) -> Record:
        """Return the attempt's record, for a round that cannot begin. Events are appended if possible."""
        record = Record(self._attempt or self.folder, self._termination_log, self._failure_file)
        record.failure = failure
        try:
            record.open()
        except (ConfigError, WaitError):  # the verdict may still be written
            pass
        return record

    @property
    def of_verdict(self) -> str:
        """Return the path of the attempt's verdict."""
        return os.path.join(self._attempt or self.folder, folders.VERDICT)

    def open(self, new: bool = False) -> bool:
        """Make the folder and open the events. Return False if `new` is set and the folder exists.

        Raises ConfigError if the folder cannot be written, or if one of the file names is taken by something
        other than a file; WaitError if no descriptor or disk space is left.
        """
        try:
            if not disk.make_folder(self.folder) and new:
                return False
            path = os.path.join(self.folder, folders.EVENTS)
            self._events = disk.append(path)
            for name in (folders.PLAN, folders.VERDICT):
                disk.require(os.path.join(self.folder, name))
            self._reserve()
            self._spare = os.dup(self._events)
            if not self._attempt:
                self._bequeath()
            return True
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
                raise refused(error) from None
            msg = f"log directory {self.folder}: cannot be written by uid {os.getuid()}, gid {os.getgid()}: {error}"
            if self._attempt and getattr(error, "errno", 0) in _BROKEN:  # an earlier round could write there
                raise WaitError(msg) from None
            msg += "; name another with --log-dir or RANKLAUNCH_LOG_DIR"
            raise (WaitError if getattr(error, "errno", 0) in SHORTAGES else ConfigError)(msg) from None

    def _bequeath(self) -> None:
        """Hand the guardian the facts for a verdict after a kill of the supervisor."""
        bequeath("started", now())
        bequeath("termination_log", self._termination_log)
        bequeath("failure_file", self._failure_file)
        bequeath("folder", self.folder)
        bequeath("signalled", "")
        bequeath("judged", "")

    def close(self) -> None:
        """Close the file of events."""
        for fd in (self._events, self._spare):
            if fd >= 0:
                os.close(fd)
        self._events = self._spare = -1

    def event(self, event: str, /, **details: Any) -> None:
        if self._events < 0:
            return
        line = json.dumps({"event": event, "monotonic": round(time.monotonic(), 6), "time": now(), **details}).encode() + b"\n"
        if self._held is not None:
            self._held += line
        else:
            self._put(line)

    @property
    def is_gone(self) -> bool:
        """True if the events file was removed or moved, and the logs beside it most likely too."""
        try:
            return self._events >= 0 and not os.path.samestat(os.fstat(self._events), os.stat(os.path.join(self.folder, folders.EVENTS)))
        except OSError:
            return True

    def hold(self) -> None:
        """Keep events in memory until release()."""
        self._held = b""

    def release(self) -> None:
        held, self._held = self._held, None
        if held:
            self._put(held)

    def _put(self, lines: bytes) -> None:
        try:
            os.write(self._events, lines)
        except OSError:  # a full disk is reported with the log that fails first; the job goes on
            pass

    def plan(self, plan: dict[str, Any]) -> None:
        self._write(folders.PLAN, plan)

    def verdict(self, verdict: Verdict) -> str:
        """Write the verdict. Return its path, "" if it could not be written."""
        self._free()
        written = self._write(folders.VERDICT, as_json(verdict))
        if self._attempt:
            written = self._write(folders.VERDICT, as_json(verdict), self._attempt)
        if written:
            bequeath("judged", str(verdict.judgement.exit_code))
        self.last_words(*_message(verdict.judgement))
        return written

    def of_round(self, verdict: Verdict, restart: Mapping[str, Any]) -> str:
        """Write the end of a round that another round follows; the attempt's own verdict comes
        with the last round. Return the path, "" if it could not be written."""
        if self._attempt:  # the attempt's folder has a reserve of its own
            _remove_reserve(self.folder)
        return self._write(folders.ROUND, {**as_json(verdict), "restart": dict(restart)})

    def ends(self, ends: Mapping[str, Any]) -> None:
        """Write ends.json. A failed write is not reported: verdict.json already has all important facts.

        A round that could not begin has no ends; its record is in the first round's folder.
        """
        if not self.failure:
            self._write(folders.ENDS, dict(ends))

    def _reserve(self) -> None:
        """Reserve room for the verdict: the logs of ranks may fill the disk."""
        fd = disk.private(os.path.join(self.folder, RESERVE))
        try:
            os.posix_fallocate(fd, 0, RESERVED)
        except OSError:  # the next write reports a disk that is full already
            pass
        finally:
            os.close(fd)

    def _free(self) -> None:
        """Free the reserved room and a descriptor for the last files."""
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1
        for folder in {self.folder, self._attempt or self.folder}:
            _remove_reserve(folder)

    def last_words(self, reason: str, exit_code: int) -> None:
        """Write the termination message into the file that Kubernetes made. The file is never
        created here."""
        text = "" if exit_code == 0 else f"{reason}\n"
        if text and self._failure_file:
            self._fail(text)
        try:
            fd = os.open(self._termination_log, os.O_WRONLY | os.O_TRUNC | os.O_NONBLOCK | os.O_CLOEXEC)
        except (OSError, ValueError):
            return
        try:
            os.write(fd, text.encode(errors="replace")[:TERMINATION_BYTES])
        except OSError:
            pass
        finally:
            os.close(fd)

    def _fail(self, text: str) -> None:
        """Write the reason into the platform's failure file. A file that the program wrote stays: it has more details."""
        try:
            disk.make_folder(os.path.dirname(self._failure_file))
            with open(self._failure_file, "x", encoding="utf-8", errors="replace") as file:
                file.write(text)
        except (OSError, ValueError):
            pass

    def _write(self, name: str, value: dict[str, Any], folder: str = "") -> str:
        path = os.path.join(folder or self.folder, name)
        try:
            write_file(path, json.dumps(value, indent=1) + "\n", 0o644)
        except (OSError, disk.NotRegularError):
            return ""
        return path


def _remove_reserve(folder: str) -> None:
    try:
        os.unlink(os.path.join(folder, RESERVE))
    except OSError:
        pass


PRIME = (1 << 32) - 5  # a command modulo PRIME serves as its checksum, without importing a module


def run_id(logs: str, job: str, command: str, trouble: list[str] | None = None) -> str:
    """Return the run id of a job and its command: the id that an earlier attempt wrote into the log
    folder, or a new one. trouble: gets a text if the id cannot be kept."""
    path = os.path.join(logs, RUN_IDS)
    known = f"{job} {int.from_bytes(command.encode(errors='surrogateescape'), 'big') % PRIME:08x}"
    lock = _locked(logs)
    ids: dict[str, str] = {}
    why = ""
    try:
        ids = _run_ids(path)
        if known not in ids:
            ids[known] = os.urandom(8).hex()
            write_file(path, json.dumps({name: ids[name] for name in list(ids)[-MOST_IDS:]}), 0o644)
    except OSError as error:  # files of other jobs there stay
        why = f"{path}: {error.strerror or error}"
    except disk.NotRegularError as error:
        why = f"{path} is {error.kind}, not a file"
    if why:
        ids.setdefault(known, os.urandom(8).hex())
        if trouble is not None:
            trouble.append(f"{why}: the run's id is not kept, so a later attempt gets a new one")
    if lock >= 0:
        os.close(lock)
    return ids[known]


def _run_ids(path: str) -> dict[str, str]:
    """Return the ids by job and command, {} from a damaged file. Raises OSError and
    NotRegularError."""
    try:
        kept = json.loads(disk.read(disk.own(path), MOST_OF_IDS)) if os.path.lexists(path) else {}
    except (ValueError, RecursionError):
        return {}
    items = kept.items() if isinstance(kept, dict) else ()
    return {name: text for name, text in items if isinstance(text, str) and len(text) == ID_LENGTH and text.isalnum()}


def _locked(folder: str) -> int:
    """Return the descriptor of disk.lock, -1 if the lock is not free within LOCK_S."""
    until = time.monotonic() + LOCK_S
    while True:
        try:
            fd = disk.lock(folder)
        except OSError:
            return -1
        if fd is not None or time.monotonic() > until:
            return -1 if fd is None else fd
        time.sleep(0.01)


def make_private(path: str) -> None:
    """Make an empty folder that nobody else can enter. Raises ConfigError if that fails."""
    parent = os.path.dirname(path)
    try:
        disk.make_folder(parent)
    except OSError as error:
        raise _no_place(parent, error) from None
    if os.path.lexists(path):
        owner = os.lstat(path).st_uid
        if owner != os.geteuid() or os.path.islink(path):
            msg = f"{path} already exists, and belongs to user id {owner}; set RANKLAUNCH_RUN_DIR to another folder"
            raise ConfigError(msg)
        import shutil  # large

        shutil.rmtree(path)
    try:
        os.mkdir(path, 0o700)
    except OSError as error:
        raise _no_place(parent, error) from None


def _no_place(folder: str, error: OSError) -> ConfigError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):  # a shortage that may pass
        raise error
    place = f"{folder}: {error.strerror} for user id {os.geteuid()}"
    return ConfigError(f"{place}; set RANKLAUNCH_RUN_DIR to another folder for the job's keys")


def offered(path: str) -> str:
    """Return the short text of a file that this node offers to its peers; a preparing step made the file."""
    return disk.read(disk.own(path), MOST_OFFERED).decode("ascii").strip()


def copied(path: str) -> str:
    """Return the text of a file. Raises ConfigError if it cannot be read."""
    try:
        return disk.read(disk.readable(path), MOST_COPIED).decode(errors="surrogateescape")
    except OSError as error:
        msg = f"{path}: {error.strerror}; user id {os.getuid()} must be able to read it"
        raise ConfigError(msg) from None


def made_since(path: str, began: float) -> list[bytes] | None:
    """Return the lines of a file that the job made; None for a file of an earlier job. began:
    start of the job, seconds since 1970."""
    try:
        if os.stat(path).st_mtime < began:
            return None
        return disk.read(disk.readable(path), MOST_SHOWN).splitlines()
    except (OSError, disk.NotRegularError):
        return None


def write_file(path: str, text: str, mode: int) -> None:
    """Write a file, whole or not at all. Raises OSError, and ConfigError if the path is taken by
    something other than a file."""
    disk.write(path, text.encode(errors="surrogateescape"), mode)


def bequeath(name: str, text: str) -> None:
    """Hand a fact to the guardian, for its actions after a kill of the supervisor.

    Names: folder, started, termination_log and failure_file, for the verdict; private, recorders,
    asked_in and socket, for removal; judged: exit code of the written verdict; grace_s; stop: signal of
    a stop request, followed by a beat every second; beats: the supervisor is able to send beats;
    signalled: the ranks were signalled; launcher_PID: number of generations from a launcher down to its
    ranks, and its carrier programs.
    """
    if will >= 0:
        try:
            os.write(will, os.fsencode(f"{name}={text}") + b"\0")
        except OSError:  # the guardian has ended, or the pipe is full
            pass


def _message(judgement: Judgement) -> tuple[str, int]:
    """Return the termination message of a container, and the exit code."""
    error = judgement.culprit.error if judgement.culprit else None
    remedy = [error.remedy] if error and error.remedy else []
    return "\n".join([judgement.reason, *remedy, *judgement.notes]), judgement.exit_code
