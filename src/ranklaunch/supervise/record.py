"""What stays of an attempt: plan.json, events.jsonl, verdict.json, and the last words that Kubernetes shows."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Callable, Mapping
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
MOST_IDS, ID_LENGTH = 10_000, 16  # of jobs whose logs are in one folder: the newest
MOST_OF_IDS = 8 * 1024 * 1024  # bytes
LOCK_S = 2.0
TERMINATION_BYTES = 4096  # what Kubernetes reads of the file
_BROKEN = (errno.EROFS, errno.EIO, errno.ESTALE, errno.ENOTCONN)  # a file system, or the way to it

will = -1  # a descriptor: where the supervisor says what is to be done if it is killed


def now() -> str:
    """UTC, ISO 8601."""
    seconds, microseconds = divmod(time.time_ns() // 1000, 1_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{microseconds:06d}+00:00"


class Record:
    """The folder of one attempt, or of a restart in place, whose attempt has one of its own. Nothing in it that an earlier start wrote is
    lost: logs and events are appended to. failure: why what it is of cannot begin. trouble: what is not kept, and why;
    said with that of the logs."""

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
        """What has the attempt's verdict, for a round that cannot begin. Its events go on where they can."""
        record = Record(self._attempt or self.folder, self._termination_log, self._failure_file)
        record.failure = failure
        try:
            record.open()
        except (ConfigError, WaitError):  # the verdict may still find room
            pass
        return record

    @property
    def of_verdict(self) -> str:
        """The path of the attempt's verdict."""
        return os.path.join(self._attempt or self.folder, folders.VERDICT)

    def open(self, new: bool = False) -> bool:
        """False where the folder was to be new and is there. Raises ConfigError where it cannot be written, or something else than a file
        stands where one of ours belongs. Raises WaitError where no descriptor or disk is left."""
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
            if self._attempt and getattr(error, "errno", 0) in _BROKEN:  # which an earlier round could write
                raise WaitError(msg) from None
            msg += "; name another with --log-dir or RANKLAUNCH_LOG_DIR"
            raise (WaitError if getattr(error, "errno", 0) in SHORTAGES else ConfigError)(msg) from None

    def _bequeath(self) -> None:
        """What the verdict of a supervisor that is killed needs."""
        bequeath("started", now())
        bequeath("termination_log", self._termination_log)
        bequeath("failure_file", self._failure_file)
        bequeath("folder", self.folder)
        bequeath("told", "")
        bequeath("judged", "")

    def close(self) -> None:
        """No more events."""
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
        """Whether its events, and the logs beside them, are no longer where they were opened, for somebody has removed or moved them."""
        try:
            return self._events >= 0 and not os.path.samestat(os.fstat(self._events), os.stat(os.path.join(self.folder, folders.EVENTS)))
        except OSError:
            return True

    def hold(self) -> None:
        """Events are written at release()."""
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
        """Writes the verdict; its path, or "" where it could not be written."""
        self._free()
        written = self._write(folders.VERDICT, as_json(verdict))
        if self._attempt:
            written = self._write(folders.VERDICT, as_json(verdict), self._attempt)
        if written:
            bequeath("judged", str(verdict.judgement.exit_code))
        self.last_words(*_message(verdict.judgement))
        return written

    def of_round(self, verdict: Verdict, restart: Mapping[str, Any]) -> str:
        """The end of a round that another follows; the attempt's own verdict is that of the last. Its path, "" where there is none."""
        if self._attempt:  # which keeps room of its own
            _remove_reserve(self.folder)
        return self._write(folders.ROUND, {**as_json(verdict), "restart": dict(restart)})

    def ends(self, ends: Mapping[str, Any]) -> None:
        """Write ends.json. A failure is not reported: the verdict, which comes first, has all that counts. A round that cannot begin
        has no ends, and its folder would be that of the first."""
        if not self.failure:
            self._write(folders.ENDS, dict(ends))

    def _reserve(self) -> None:
        """Room for the verdict, for when the ranks' logs have filled the disk."""
        fd = disk.private(os.path.join(self.folder, RESERVE))
        try:
            os.posix_fallocate(fd, 0, RESERVED)
        except OSError:  # a disk that is full already is found out by what is written next
            pass
        finally:
            os.close(fd)

    def _free(self) -> None:
        """Room on the disk and a descriptor for what is written last."""
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1
        for folder in {self.folder, self._attempt or self.folder}:
            _remove_reserve(folder)

    def last_words(self, reason: str, exit_code: int) -> None:
        """For /dev/termination-log, which Kubernetes makes; never made by ranklaunch."""
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
        """For the platform that takes the reason from a file. What the program itself wrote there stays: it knows more."""
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


PRIME = (1 << 32) - 5  # the rest of a division by it tells commands apart as a checksum does, and needs no module


def run_id(logs: str, job: str, command: str, on_trouble: Callable[[str], None] = lambda text: None) -> str:
    """Of this job and its command, as an earlier attempt has left it there, else a new one. on_trouble: is told where it is not kept."""
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
    except OSError as error:  # what others have there stays
        why = f"{path}: {error.strerror or error}"
    except disk.NotRegularError as error:
        why = f"{path} is {error.kind}, not a file"
    if why:
        ids.setdefault(known, os.urandom(8).hex())
        on_trouble(f"{why}: the run's id is not kept, so a later attempt has another")
    if lock >= 0:
        os.close(lock)
    return ids[known]


def _run_ids(path: str) -> dict[str, str]:
    """Nothing where it is damaged. Raises OSError and NotRegularError."""
    try:
        kept = json.loads(disk.read(disk.own(path), MOST_OF_IDS)) if os.path.lexists(path) else {}
    except (ValueError, RecursionError):
        return {}
    found = kept.items() if isinstance(kept, dict) else ()
    return {name: text for name, text in found if isinstance(text, str) and len(text) == ID_LENGTH and text.isalnum()}


def _locked(folder: str) -> int:
    """As disk.lock; -1 where it is not to be had in time."""
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
    """An empty folder that nobody else can enter. Raises ConfigError where it cannot be made."""
    parent = os.path.dirname(path)
    try:
        disk.make_folder(parent)
    except OSError as error:
        raise _no_place(parent, error) from None
    if os.path.lexists(path):
        owner = os.lstat(path).st_uid
        if owner != os.geteuid() or os.path.islink(path):
            msg = f"{path} is there already, and belongs to user id {owner}: RANKLAUNCH_RUN_DIR names another place"
            raise ConfigError(msg)
        import shutil  # large

        shutil.rmtree(path)
    try:
        os.mkdir(path, 0o700)
    except OSError as error:
        raise _no_place(parent, error) from None


def _no_place(folder: str, error: OSError) -> ConfigError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):  # may pass
        raise error
    return ConfigError(f"{folder}: {error.strerror} for user id {os.geteuid()}: RANKLAUNCH_RUN_DIR names another place for the job's keys")


def offered(path: str) -> str:
    """What a node has for the others: a short text that a preparing step has made."""
    return disk.read(disk.own(path), MOST_OFFERED).decode("ascii").strip()


def copied(path: str) -> str:
    """Raises ConfigError where it cannot be read."""
    try:
        return disk.read(disk.given(path), MOST_COPIED).decode(errors="surrogateescape")
    except OSError as error:
        msg = f"{path}: {error.strerror}; user id {os.getuid()} needs it"
        raise ConfigError(msg) from None


def made_since(path: str, began: float) -> list[bytes] | None:
    """The lines of a file that the job has made; None of one that an earlier job has left. began: seconds since 1970."""
    try:
        if os.stat(path).st_mtime < began:
            return None
        return disk.read(disk.given(path), MOST_SHOWN).splitlines()
    except (OSError, disk.NotRegularError):
        return None


def write_file(path: str, text: str, mode: int) -> None:
    """Whole or not at all. Raises ConfigError where something else than a file is there, and OSError."""
    disk.write(path, text.encode(errors="surrogateescape"), mode)


def bequeath(name: str, text: str) -> None:
    """What the other process of ranklaunch needs to know where it has to act in the supervisor's place: folder, started, termination_log
    and failure_file of the verdict that it then leaves; the private folders and the socket that it removes; judged: there is a verdict,
    with that exit code; the grace; stop: a stop request by that signal, after which a beat comes every second; told: the ranks were told
    to end; launcher_PID, of each launcher: how many generations below it its ranks are, whether it is to be halted while they end, and
    through which programs they come."""
    if will >= 0:
        try:
            os.write(will, os.fsencode(f"{name}={text}") + b"\0")
        except OSError:  # it is gone, or full
            pass


def _message(judgement: Judgement) -> tuple[str, int]:
    """Return the termination message of a container, and the exit code."""
    error = judgement.culprit.error if judgement.culprit else None
    remedy = [error.remedy] if error and error.remedy else []
    return "\n".join([judgement.reason, *remedy, *judgement.notes]), judgement.exit_code
