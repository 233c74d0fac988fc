"""Which launcher of ranks a user's program is, if it is one: started once for each rank, it would train as often.

It may stand below what starts it: an interpreter, env, a shell's -c.
"""

from __future__ import annotations

import itertools
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
_PROGRAM = re.compile(r"python[0-9.]*|.*\.(?:py|sh)")  # beside the names below
_ASKS = {"--version", "-V", "--help", "-h", "--check-build", "-cb"}  # with one of these first it starts nothing


class Kind(Value):
    """method: ours that starts ranks in its way, "" for none. nodes: an option without which it is alone on its node, "" if one launcher
    starts the ranks of all nodes. variable: has the option's value too."""

    method: str
    nodes: str = ""
    variable: str = ""


_AGAIN = Kind("")
# Names of each kind, with the word behind a name where only that starts ranks.
_BY_KIND = {
    Kind("torchrun", "--nnodes", "PET_NNODES"): (
        "torchrun",
        "python -m torch.distributed.run",
        "python -m torch.distributed.launch",
    ),
    Kind("accelerate", "--num_machines"): ("accelerate launch", "accelerate-launch", "python -m accelerate.commands.launch"),
    Kind("deepspeed", "--no_ssh"): ("deepspeed", "deepspeed.pt", "python -m deepspeed.launcher.runner"),
    Kind("msrun", "--master_addr"): ("msrun",),
    Kind("mpirun"): (
        "mpirun", "mpiexec", "orterun", "prterun", "mpirun.openmpi", "mpiexec.openmpi", "mpiexec.hydra", "horovodrun",
        "python -m horovod.runner",
    ),
    Kind("", "--nnodes", "PADDLE_NNODES"): ("python -m paddle.distributed.launch",),
    _AGAIN: ("ranklaunch run", "python -m ranklaunch run"),
}  # fmt: skip
KINDS = {name: kind for kind, names in _BY_KIND.items() for name in names}
_NAMES = {*WRAPPERS, *SHELLS, *(name.partition(" ")[0] for name in KINDS)}
_OWN_JOB = ("--job-name|RANKLAUNCH_JOB_NAME|--env-file", "--log-dir|RANKLAUNCH_LOG_DIR|--env-file")


class Found(Value):
    """name: how messages call it. words: what follows its name."""

    name: str
    kind: Kind
    words: tuple[str, ...]

    def is_run_within(self, program: Program) -> bool:
        """Whether it is a run of our own, of no other job as far as its words say. What they do not say, it finds out when it starts."""
        line = " ".join(program.words)
        return self.kind is _AGAIN and not all(re.search(own, line) for own in _OWN_JOB)

    def alone(self, nodes: int, env: Mapping[str, str]) -> str:
        """Why it must not run once on each of several nodes, as the end of a sentence; "" where it may."""
        kind = self.kind
        if any(words.UNKNOWN in word for word in self.words):
            return ""
        if not kind.nodes:
            return "of which one starts the ranks of all nodes"
        given = [*words.values(self.words, kind.nodes, words.with_underscores), env.get(kind.variable, "").strip()]
        if given == [""]:
            return f"and without {kind.nodes} each node would train alone"
        count = given[0]
        return f"and its {kind.nodes} is {showing.clipped(count)}" if count.isdecimal() and number(count) != nodes else ""

    @property
    def instead(self) -> str:
        """The line that starts the same program by a method, as far as that can be made out."""
        at = next((i for i, word in enumerate(self.words) if word in ("-m", "--module") or word.endswith((".py", ".sh"))), None)
        program = ["PROGRAM", "[ARGS...]"] if at is None else [shlex.quote(word) for word in redact.argv(self.words[at:])]
        method = f"--method {self.kind.method} " if self.kind.method else ""
        return f"ranklaunch run {method}-- {' '.join(program)}"


def find(program: Program) -> Found | None:
    return of_words(("python", *program.words) if program.module else program.words)


def of_words(command: Sequence[str]) -> Found | None:
    """Return the launcher that a command is, or that it starts behind a shell, an interpreter or a wrapper."""
    if not command:
        return None
    name, rest = _base(command[0]), command[1:]
    if name in SHELLS:
        return _in_text(rest)
    if name.startswith("python") and _PROGRAM.fullmatch(name):
        return _by_python(rest)
    if name in WRAPPERS:
        return of_words(tuple(itertools.dropwhile(_is_option, rest)))
    return _known(name, rest)


def _is_option(word: str) -> bool:
    """Return False for a word that ends the options of a wrapper and their values."""
    name = _base(word)
    return name not in _NAMES and not _PROGRAM.fullmatch(name)


def _base(path: str) -> str:
    return path.rpartition("/")[2]


def _known(name: str, rest: Sequence[str]) -> Found | None:
    for taken in (0, 1):
        full = " ".join((name, *rest[:taken]))
        if full in KINDS:
            return Found(full, KINDS[full], tuple(rest[taken:]))
    return None


def _by_python(command: Sequence[str]) -> Found | None:
    """Return the launcher behind an interpreter's options: -m MODULE, or a launcher's file."""
    rest = iter(command)
    for word in rest:
        if word == "-m":
            return _known(f"python -m {next(rest, '')}", tuple(rest))
        if word in ("-W", "-X"):
            next(rest, "")
        elif not word.startswith("-"):
            return _known(_base(word), tuple(rest))
    return None


def _in_text(command: Sequence[str]) -> Found | None:
    """Return the first launcher in the text of a shell's -c. Options end with the one that has a c; the environment is unknown."""
    at = next((at for at, word in enumerate(command) if re.fullmatch(r"-[a-z]*c", word)), len(command))
    for found, _ in in_script("".join(command[at + 1 : at + 2]), None, None):
        return replace(found, words=tuple(word.replace(words.UNKNOWN, "...") for word in found.words))
    return None


def in_script(text: str, env: Mapping[str, str] | None, args: Sequence[str] | None) -> Iterator[tuple[Found, bool]]:
    """Yield the launchers among a script's commands, each with True if no condition decides whether the script reaches it.

    env, args: environment and arguments when the script starts; None if unknown.
    """
    from ranklaunch.adapters.launchers.shared.scripts import shell  # most programs are no scripts

    for command in shell.commands(text, env, args):
        found = of_words(command.words[1:] if command.words[0] in ("exec", "command") else command.words)
        if found and not _ASKS.intersection(found.words[:1]):
            yield found, command.reached
