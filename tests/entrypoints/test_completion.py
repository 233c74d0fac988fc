"""ranklaunch completion, in the shells themselves."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import time
from pathlib import Path

import helpers
import pytest

from ranklaunch.entrypoints.completion import SHELLS, commands
from ranklaunch.entrypoints.main import COMMANDS

WAIT_S = 60
# What is typed, of it the word to complete last: what is offered, in part or, where it ends so, nothing else.
CASES: dict[str, set[str]] = {
    "ranklaunch lay": {"layout"},
    "ranklaunch run --metho": {"--method"},
    "ranklaunch run --method sp": {"spawn"},
    "ranklaunch run --method=sp": {"spawn"},
    "ranklaunch run --debugpy-wait --hang rest": {"restart"},
    "ranklaunch plan --slots 2 --format vs": {"vscode"},
    "ranklaunch run --slots 2 tra": {"train.py"},
    "ranklaunch run train.py --metho": set(),
    "ranklaunch run train.py dat": {"data.json"},
    "ranklaunch run --env-file dat": {"data.json"},
    "ranklaunch spec modela": {"modelarts"},
    "ranklaunch spec slurm --part": {"--partition"},
    "ranklaunch ranktable val": {"validate"},
    "ranklaunch ranktable show dat": {"data.json"},
    "ranklaunch ranktable show --format js": {"json"},
    "ranklaunch explain dat": {"data.json"},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("train.py", "data.json"):
        (tmp_path / name).touch()
    return tmp_path


def shell(name: str) -> str:
    return shutil.which(name) or pytest.skip(f"there is no {name} here")


def script(name: str) -> str:
    done = helpers.call("completion", name)
    assert (done.code, done.err) == (0, "")
    return str(done.out)


def test_every_command_has_the_options_of_its_help() -> None:
    assert [command.name for command in commands()] == list(COMMANDS)
    for command in commands():
        if command.name == "ranktable":  # whose actions have a help each
            texts = [helpers.call("ranktable", action, "--help").out for action in command.words]
        else:
            texts = [helpers.call(command.name, "--help").out] if command.name not in ("run", "simulate", "tune") else []
        said = set(re.findall(r"(?m)^  (?:-h, )?(--[a-z][a-z-]*)", "\n".join(texts)))
        assert not texts or {option.name for option in command.options} | {"--help"} == said | {"--help"}, command.name


@pytest.mark.processes
@pytest.mark.parametrize("line", CASES)
def test_bash(line: str, folder: Path) -> None:
    """As readline calls it: with words broken at =, and files where it offers nothing."""
    words = re.findall(r"=|[^ =]+", line)
    asks = (
        f"{script('bash')}\nCOMP_WORDS=({' '.join(words)}) COMP_CWORD={len(words) - 1}\n_ranklaunch\n"
        'printf "%s\\n" "${COMPREPLY[@]}"; [[ ${COMPREPLY[*]} ]] || compgen -f -- "${COMP_WORDS[COMP_CWORD]}"'
    )
    done = subprocess.run([shell("bash"), "-c", asks], cwd=folder, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert (done.stderr, set(done.stdout.split())) == ("", CASES[line])


@pytest.mark.processes
def test_bash_has_no_complaint_where_unset_variables_are_errors(folder: Path) -> None:
    asks = f"set -u\n{script('bash')}\nCOMP_WORDS=(ranklaunch run --slots '') COMP_CWORD=3\n_ranklaunch || true\n"
    done = subprocess.run([shell("bash"), "-c", asks], cwd=folder, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.processes
@pytest.mark.parametrize("line", CASES)
def test_fish(line: str, folder: Path) -> None:
    fish = shell("fish")
    (folder / "completion.fish").write_text(script("fish"), encoding="utf-8")
    asks = f"source completion.fish; complete -C '{line}'"
    env = {**os.environ, "HOME": str(folder), "XDG_CONFIG_HOME": str(folder / ".config")}
    done = subprocess.run([fish, "-c", asks], cwd=folder, env=env, capture_output=True, text=True, timeout=WAIT_S, check=False)
    offered = {text.partition("\t")[0].rpartition("=")[2] for text in done.stdout.splitlines()}
    assert (done.stderr, offered) == ("", CASES[line])


@pytest.mark.processes
def test_zsh(folder: Path) -> None:
    """Typed at a terminal, each with a TAB behind it."""
    zsh = shell("zsh")
    (folder / "_ranklaunch").write_text(script("zsh"), encoding="utf-8")
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execve(zsh, [zsh, "-f", "-i"], {**os.environ, "TERM": "dumb", "HOME": str(folder), "PS1": "> "})
    try:
        told = Told(terminal)
        told.type("autoload -U compinit && compinit -u -D && source ./_ranklaunch && unsetopt zle_bracketed_paste; echo rea''dy\n", "ready")
        told.type("ranklaunch() { echo not cal''led }; echo def''ined\n", "defined")
        for line, offered in CASES.items():
            for word in offered:
                told.type(f"{line}\t", line.rpartition(" ")[0], word)
                told.type("\x15", "")  # of this line, nothing stays
        assert "--method" not in told.type("ranklaunch run train.py --metho\t\n", "not called")
    finally:
        os.close(terminal)
        os.waitpid(pid, 0)


class Told:
    """What a terminal shows."""

    def __init__(self, terminal: int) -> None:
        self._terminal = terminal

    def type(self, keys: str, *wanted: str) -> str:
        """What is shown from then on, until each of the texts has been."""
        os.write(self._terminal, keys.encode())
        shown, ends = "", time.monotonic() + WAIT_S
        while not all(text in shown for text in wanted):
            assert time.monotonic() < ends, f"after {keys!r}: {shown!r}, without {wanted}"
            if select.select([self._terminal], [], [], 0.2)[0]:
                shown += os.read(self._terminal, 65536).decode(errors="replace")
        return shown


@pytest.mark.parametrize("words", [(), ("tcsh",), ("bash", "zsh")])
def test_another_shell_is_refused(words: tuple[str, ...]) -> None:
    done = helpers.call("completion", *words)
    assert done.code == 2
    assert f"usage: ranklaunch completion {'|'.join(SHELLS)}" in done.err
