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
    given = (program.path, *program.args)
    return _module(given) if program.module else of_words(given)


def of_words(given: Sequence[str]) -> Found | None:
    name = _name(given[:1])
    if name in SHELLS:
        return _in_text(given[1:])
    if _PYTHON.fullmatch(name):
        return _by_python(given[1:])
    kind = KINDS.get(name)
    if kind:
        return _found(name, kind, given[1:])
    if name not in WRAPPERS:
        return None
    below = next((i for i, word in enumerate(given) if i and _is_program(word)), 0)
    return of_words(given[below:]) if below else None


def _is_program(word: str) -> bool:
    """Behind a wrapper's options and their values. What ends the search is none that starts ranks."""
    name = _name([word])
    return name in KINDS or name in WRAPPERS or name in SHELLS or bool(_PYTHON.fullmatch(name)) or word.endswith((".py", ".sh"))


def _name(given: Sequence[str]) -> str:
    return given[0].rpartition("/")[2] if given else ""


def _found(name: str, kind: Kind, rest: Sequence[str]) -> Found | None:
    if not kind.needs:
        return Found(name, kind, tuple(rest))
    return Found(f"{name} {kind.needs}", kind, tuple(rest[1:])) if list(rest[:1]) == [kind.needs] else None


def _by_python(given: Sequence[str]) -> Found | None:
    """Behind an interpreter's name: -m MODULE, or a launcher's file."""
    left = list(given)
    while left and left[0].startswith("-") and left[0] != "-m":
        del left[: 2 if left[0] in ("-W", "-X") else 1]
    if left[:1] == ["-m"]:
        return _module(left[1:])
    kind = KINDS.get(_name(left))
    return _found(_name(left), kind, left[1:]) if kind else None


def _module(given: Sequence[str]) -> Found | None:
    kind = _MODULES.get(given[0]) if given else None
    return _found(f"python -m {given[0]}", kind, given[1:]) if kind else None


def _in_text(given: Sequence[str]) -> Found | None:
    """A shell's options end with the one that has a c. Of the environment of its text nothing is known here."""
    at = next((i for i, word in enumerate(given) if re.fullmatch(r"-[a-z]*c", word)), len(given))
    text = "".join(given[at + 1 : at + 2])
    found = next((found for found, _ in in_script(text, None, ())), None)
    return replace(found, words=tuple(word.replace("\0", "...") for word in found.words)) if found else None


def in_script(text: str, env: Mapping[str, str] | None, args: Sequence[str]) -> Iterator[tuple[Found, bool]]:
    """Those of a shell's commands that start ranks, each with whether it is in no condition. env: None where it is not known."""
    if not MENTIONS.search(text):
        return
    from ranklaunch.adapters.launchers.shared.scripts import said  # most have none

    for line in said.lines(text, env, args):
        found = of_words(line.words[1:] if line.words[0] in ("exec", "command") else line.words)
        if found and not _ASKS.intersection(found.words[:1]):
            yield found, line.reached
