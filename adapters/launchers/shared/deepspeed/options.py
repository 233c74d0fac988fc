"""DeepSpeed's options, as its parser of Python's argparse reads them: abbreviations, short forms, values behind = or in the next word."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ranklaunch.adapters.launchers.shared import words
from ranklaunch.typed import NamedTuple

SHORT = {"-h": "--help", "-H": "--hostfile", "-i": "--include", "-e": "--exclude", "-q": "--quiet"}
WITH_VALUE = (
    "--hostfile", "--include", "--exclude", "--num_nodes", "--num_gpus", "--num_accelerators", "--min_elastic_nodes", "--max_elastic_nodes",
    "--master_port", "--master_addr", "--node_rank", "--launcher", "--launcher_args", "--enable_each_rank_log", "--autotuning",
    "--bind_core_list", "--ssh_port", "--venv_script", "--log_level", "--slurm_comment",
)  # fmt: skip
SWITCHES = (
    "--module", "--no_python", "--no_local_rank", "--no_ssh", "--no_ssh_check", "--force_multi", "--save_pid", "--bind_cores_to_rank",
    "--quiet", "--elastic_training", "--detect_nvlink_pairs", "--help",
)  # fmt: skip
PARSER = words.Parser(WITH_VALUE, SWITCHES, SHORT)
spelled = PARSER.spelled


class Option(NamedTuple):
    """words: as they were written. name: whole and long; of what is no option of DeepSpeed's, the word itself."""

    name: str
    value: str
    words: tuple[str, ...]


def parsed(given: Sequence[str]) -> tuple[Option, ...]:
    found = []
    at = 0
    while at < len(given):
        option = _option(given[at], given[at + 1 : at + 2])
        found.append(option)
        at += len(option.words)
    return tuple(found)


def _option(word: str, following: Sequence[str]) -> Option:
    written, equals, value = word.partition("=")
    if not word.startswith("--") and word[:2] in SHORT and len(word) > len("-i"):
        written, equals, value = word[:2], "=", word[2:].lstrip("=")
    name = spelled(written) if word.startswith("-") else word
    if name not in WITH_VALUE or equals:
        return Option(name, value, (word,))
    return Option(name, "".join(following), (word, *following))


def values(options: Iterable[Option], *names: str) -> list[str]:
    """In their order: the last counts."""
    return [option.value for option in options if option.name in names]


def without(options: Iterable[Option], names: Iterable[str]) -> tuple[str, ...]:
    """The words of the others."""
    left_out = frozenset(names)
    return tuple(word for option in options if option.name not in left_out for word in option.words)
