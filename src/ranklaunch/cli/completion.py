"""Completion scripts for shells. They contain all commands and options, so that a TAB starts no program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ranklaunch.adapters.launchers import LAUNCHERS
from ranklaunch.adapters.platforms import PLATFORMS
from ranklaunch.cli.options import Option

LINE = "\\\n" + " " * 16
NAMES: Mapping[str, Mapping[str, object]] = {"--method": LAUNCHERS, "--platform": PLATFORMS}
MANY = 1000
HELP = Option("--help", "help", "show what the command does, and its options", "")


@dataclass(frozen=True)
class Command:
    """Command to complete.

    words: legal words beside the options; () if files may stand there. runs: True if a program with arguments follows the options.
    """

    name: str
    meaning: str
    options: tuple[Option, ...]
    words: tuple[str, ...] = ()
    runs: bool = False


def filled(option: Option) -> Option:
    """Return an option with its legal texts, also if these are the names of modules (methods, platforms)."""
    return replace(option, legal=tuple(NAMES[option.name])) if option.name in NAMES and not option.legal else option


def bash(commands: Sequence[Command]) -> str:
    """Return the script for bash."""
    cases = "".join(
        f"        {command.name})\n"
        f"            options={_quoted(' '.join(option.name for option in command.options))}\n"
        f"            switches={_quoted(' '.join(['', *(option.name for option in command.options if not option.takes), '']))}\n"
        f"            words={_quoted(' '.join(command.words))} runs={int(command.runs)}\n"
        f"            case $option in\n{_bash_values(command)}            esac ;;\n"
        for command in commands
    )
    return _BASH.replace("COMMANDS", " ".join(command.name for command in commands)).replace("CASES\n", cases)


def _bash_values(command: Command) -> str:
    return "".join(
        f"                {option.name}) values={_quoted(' '.join(option.legal))} ;;\n" for option in command.options if option.legal
    )


_BASH = """\
# Completion of ranklaunch for bash: source <(ranklaunch completion bash)
_ranklaunch() {
    local word=${COMP_WORDS[COMP_CWORD]} option= options= switches= words= values= runs=0 position=0 i
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        COMPREPLY=($(compgen -W "COMMANDS" -- "$word"))
        return
    fi
    # Bash splits --name=value into three words.
    option=${COMP_WORDS[COMP_CWORD - 1]}
    [[ $word == = ]] && word=
    [[ $option == = ]] && option=${COMP_WORDS[COMP_CWORD - 2]}
    case ${COMP_WORDS[1]} in
CASES
        *) return ;;
    esac
    for ((i = 2; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
            --) ((runs)) && return ;;
            =) i=$((i + 1)) ;;
            --*) [[ $switches == *" ${COMP_WORDS[i]} "* || ${COMP_WORDS[i + 1]-} == = ]] || i=$((i + 1)) ;;
            *) position=$((position + 1)) ;;
        esac
    done
    if ((runs && position > (${#words} > 0))); then
        return # within the program's own arguments
    fi
    if [[ $option == --?* && $switches != *" $option "* ]]; then
        COMPREPLY=($(compgen -W "$values" -- "$word"))
    elif [[ $word == -* ]]; then
        COMPREPLY=($(compgen -W "$options" -- "$word"))
    elif ((position == 0)); then
        COMPREPLY=($(compgen -W "$words" -- "$word"))
    fi
}
complete -o default -F _ranklaunch ranklaunch
"""


def zsh(commands: Sequence[Command]) -> str:
    """Return the script for zsh."""
    names = "".join(f"            {_quoted(f'{command.name}:{command.meaning}')}\n" for command in commands)
    cases = "".join(
        f"        {command.name})\n            _arguments{''.join(f' {LINE}{_quoted(each)}' for each in _of_zsh(command))} ;;\n"
        for command in commands
    )
    return _ZSH.replace("NAMES\n", names).replace("CASES\n", cases)


def _of_zsh(command: Command) -> Iterator[str]:
    """Yield the specifications for zsh's _arguments."""
    for option in command.options:
        escaped = "".join(f"\\{each}" if each in "\\[]:" else each for each in option.meaning)
        what = f"({' '.join(option.legal)})" if option.legal else "_files"
        yield f"{option.name}=[{escaped}]:{option.value}:{what}" if option.takes else f"{option.name}[{escaped}]"
    if command.words:
        yield f"1:what:({' '.join(command.words)})"
    if command.runs:
        yield f"(-){1 + bool(command.words)}:program:_files"
        yield "*::arguments: _default"
    else:
        yield "*:file:_files"


_ZSH = """\
#compdef ranklaunch
# Completion of ranklaunch for zsh: source <(ranklaunch completion zsh), after compinit; or a file _ranklaunch in a folder of fpath.
_ranklaunch() {
    local command
    if ((CURRENT == 2)); then
        local -a commands=(
NAMES
        )
        _describe command commands
        return
    fi
    command=$words[2]
    shift words
    ((CURRENT--))
    case $command in
CASES
    esac
}
if [[ $funcstack[1] == _ranklaunch ]]; then
    _ranklaunch "$@"
else
    compdef _ranklaunch ranklaunch
fi
"""


def fish(commands: Sequence[Command]) -> str:
    """Return the script for fish."""
    return "".join([_FISH, *(line for command in commands for line in _of_fish(command))])


def _of_fish(command: Command) -> Iterator[str]:
    yield f"complete -c ranklaunch -n 'not __ranklaunch_command' -f -a {command.name} -d {_in_fish(command.meaning)}\n"
    switches = " ".join(option.name for option in command.options if not option.takes)
    most = int(bool(command.words)) if command.runs else MANY
    here = f"complete -c ranklaunch -n '__ranklaunch_of {command.name} {most} {switches}'"
    for option in command.options:
        takes = f" -r -f -a {_in_fish(' '.join(option.legal))}" if option.legal else " -r -F" if option.takes else ""
        yield f"{here} -l {option.name[2:]}{takes} -d {_in_fish(option.meaning)}\n"
    if command.words:
        first = f"complete -c ranklaunch -n '__ranklaunch_of {command.name} 0 {switches}'"
        yield f"{first} -f -a {_in_fish(' '.join(command.words))}\n"


_FISH = """\
# Completion of ranklaunch for fish: ranklaunch completion fish | source
function __ranklaunch_command
    set -l words (commandline -opc)
    test (count $words) -gt 1
end
# Succeed if the command line is of this command, with at most so many words beside options. Further arguments: options without a value.
function __ranklaunch_of -a command most
    set -l words (commandline -opc)
    test (count $words) -gt 1; and test "$words[2]" = $command; or return 1
    set -l position 0
    set -l value no
    for word in $words[3..-1]
        if test $value = yes
            set value no
            continue
        end
        switch $word
            case --
                return 1
            case '--*=*'
            case '--*'
                contains -- $word $argv[3..-1]; or set value yes
            case '*'
                set position (math $position + 1)
        end
    end
    test $position -le $most
end
"""


def _quoted(text: str) -> str:
    """Quote a text for bash and zsh."""
    return "'" + text.replace("'", "'\\''") + "'"


def _in_fish(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
