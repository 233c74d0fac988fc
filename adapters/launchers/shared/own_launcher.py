"""Which launcher of ranks a user's program is, if it is one: started once for each rank, it would train as often.

It may stand below what starts it: an interpreter, env, a shell's -c.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

from ranklaunch import showing
from ranklaunch.adapters.launchers.shared import words
from ranklaunch.errors import number
from ranklaunch.read.job import SHELLS, WRAPPERS, Program
from ranklaunch.secrets import redact
from ranklaunch.values import Value, replace

# One of these words is in every text that has a launcher in it.
MENTIONS = re.compile("torchrun|accelerate|deepspeed|msrun|mpirun|mpiexec|orterun|prterun|horovod|distributed|ranklaunch")
_PYTHON = re.compile(r"python[0-9.]*")
_ASKS = {"--version", "-V", "--help", "-h", "--check-build", "-cb"}  # with one of these first it starts nothing


class Kind(Value):
    """method: ours that starts ranks in its way, "" for none. needs: its first word, where only that starts ranks. nodes: an option
    without which it is alone on its node; variable: that says the same; neither: one of it starts the ranks of all nodes."""

    method: str
    nodes: str = ""
    variable: str = ""
    needs: str = ""


_TORCH = Kind("torchrun", "--nnodes", "PET_NNODES")
_ACCELERATE = Kind("accelerate", "--num_machines")
_DEEPSPEED = Kind("deepspeed", "--no_ssh")
_MPI = Kind("mpirun")
_AGAIN = Kind("", needs="run")
KINDS: dict[str, Kind] = {
    "torchrun": _TORCH,
    "accelerate": replace(_ACCELERATE, needs="launch"),
    "accelerate-launch": _ACCELERATE,
    "deepspeed": _DEEPSPEED,
    "deepspeed.pt": _DEEPSPEED,
    "msrun": Kind("msrun", "--master_addr"),
    **dict.fromkeys(("mpirun", "mpiexec", "orterun", "prterun", "mpirun.openmpi", "mpiexec.openmpi", "mpiexec.hydra", "horovodrun"), _MPI),
    "ranklaunch": _AGAIN,
}
_MODULES: dict[str, Kind] = {
    "torch.distributed.run": _TORCH,
    "torch.distributed.launch": _TORCH,
    "accelerate.commands.launch": _ACCELERATE,
    "deepspeed.launcher.runner": _DEEPSPEED,
    "horovod.runner": _MPI,
    "paddle.distributed.launch": Kind("", "--nnodes", "PADDLE_NNODES"),
    "ranklaunch": _AGAIN,
}
_OWN_JOB = ("--job-name|RANKLAUNCH_JOB_NAME|--env-file", "--log-dir|RANKLAUNCH_LOG_DIR|--env-file")


class Found(Value):
    """name: how messages call it. words: what follows its name."""

    name: str
    kind: Kind
    words: tuple[str, ...]

    def is_run_within(self, program: Program) -> bool:
        """Whether it is a run of our own, of no other job as far as its words say. What they do not say, it finds out when it starts."""
        line = " ".join((program.path, *program.args))
        return self.kind is _AGAIN and not all(re.search(own, line) for own in _OWN_JOB)

    def alone(self, nodes: int, env: Mapping[str, str]) -> str:
        """Why it must not run once on each of several nodes, as the end of a sentence; "" where it may."""
        kind = self.kind
        if any(words.UNKNOWN in word for word in self.words):
            return ""
        if not kind.nodes:
            return "of which one starts the ranks of all nodes"
        told = words.first(self.words, kind.nodes, words.with_underscores) or env.get(kind.variable, "").strip()
        if not told and kind.nodes not in words.options(self.words, words.with_underscores):
            return f"and without {kind.nodes} each node would train alone"
        return f"and its {kind.nodes} is {showing.clipped(told)}" if told.isdecimal() and number(told) != nodes else ""

    @property
    def instead(self) -> str:
        """The line that starts the same program by a method, as far as that can be made out."""
        at = next((i for i, word in enumerate(self.words) if word in ("-m", "--module") or word.endswith((".py", ".sh"))), None)
        program = ["PROGRAM", "[ARGS...]"] if at is None else [shlex.quote(word) for word in redact.argv(self.words[at:])]
        return " ".join(["ranklaunch run", *(["--method", self.kind.method] if self.kind.method else []), "--", *program])


def find(program: Program) -> Found | None:
    command = (program.path, *program.args)
    return _module(command) if program.module else of_words(command)


def of_words(command: Sequence[str]) -> Found | None:
    """Return the launcher that a command is, or that it starts behind a shell, an interpreter or a wrapper."""
    name, rest = _name(command), command[1:]
    if name in SHELLS:
        return _in_text(rest)
    if _PYTHON.fullmatch(name):
        return _by_python(rest)
    if name in WRAPPERS:
        below = next((at for at, word in enumerate(rest) if _is_program(word)), len(rest))
        return of_words(rest[below:])
    return _found(name, KINDS.get(name), rest)


def _is_program(word: str) -> bool:
    """Return True for a word that ends the options of a wrapper and their values."""
    name = _name([word])
    return name in KINDS or name in WRAPPERS or name in SHELLS or bool(_PYTHON.fullmatch(name)) or word.endswith((".py", ".sh"))


def _name(command: Sequence[str]) -> str:
    return command[0].rpartition("/")[2] if command else ""


def _found(name: str, kind: Kind | None, rest: Sequence[str]) -> Found | None:
    if not kind or not kind.needs:
        return Found(name, kind, tuple(rest)) if kind else None
    return Found(f"{name} {kind.needs}", kind, tuple(rest[1:])) if list(rest[:1]) == [kind.needs] else None


def _by_python(command: Sequence[str]) -> Found | None:
    """Return the launcher behind an interpreter's options: -m MODULE, or a launcher's file."""
    at = 0
    while command[at : at + 1] and command[at].startswith("-"):
        if command[at] == "-m":
            return _module(command[at + 1 :])
        at += 2 if command[at] in ("-W", "-X") else 1
    name = _name(command[at:])
    return _found(name, KINDS.get(name), command[at + 1 :])


def _module(command: Sequence[str]) -> Found | None:
    name = "".join(command[:1])
    return _found(f"python -m {name}", _MODULES.get(name), command[1:])


def _in_text(command: Sequence[str]) -> Found | None:
    """Return the first launcher in the text of a shell's -c. Options end with the one that has a c; the environment is unknown."""
    at = next((at for at, word in enumerate(command) if re.fullmatch(r"-[a-z]*c", word)), len(command))
    text = "".join(command[at + 1 : at + 2])
    found = next((found for found, _ in in_script(text, None, None)), None)
    return replace(found, words=tuple(word.replace(words.UNKNOWN, "...") for word in found.words)) if found else None


def in_script(text: str, env: Mapping[str, str] | None, args: Sequence[str] | None) -> Iterator[tuple[Found, bool]]:
    """Yield the launchers among a script's commands, each with True if no condition decides whether the script reaches it.

    env, args: environment and arguments when the script starts; None if unknown.
    """
    if not MENTIONS.search(text):
        return
    from ranklaunch.adapters.launchers.shared.scripts import shell  # most have none

    for command in shell.commands(text, env, args):
        found = of_words(command.words[1:] if command.words[0] in ("exec", "command") else command.words)
        if found and not _ASKS.intersection(found.words[:1]):
            yield found, command.reached
