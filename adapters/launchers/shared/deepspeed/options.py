"""DeepSpeed's options, as its parser of Python's argparse reads them: abbreviations, short forms, values behind = or in the next word."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from ranklaunch.adapters.launchers.shared import words
from ranklaunch.typed import NamedTuple

SHORT = {"-h": "--help", "-H": "--hostfile", "-i": "--include", "-e": "--exclude", "-q": "--quiet"}
WITH_VALUE = """
    --hostfile --include --exclude --num_nodes --num_gpus --num_accelerators --min_elastic_nodes --max_elastic_nodes --master_port
    --master_addr --node_rank --launcher --launcher_args --enable_each_rank_log --autotuning --bind_core_list --ssh_port --venv_script
    --log_level --slurm_comment
"""
SWITCHES = """
    --module --no_python --no_local_rank --no_ssh --no_ssh_check --force_multi --save_pid --bind_cores_to_rank --quiet --elastic_training
    --detect_nvlink_pairs --help
"""
PARSER = words.Parser(tuple(WITH_VALUE.split()), tuple(SWITCHES.split()), SHORT)
spelled = PARSER.spelled


class Option(NamedTuple):
    """An option with its value. name: whole and long; of a word that is no option, its beginning. words: as they were written."""

    name: str
    value: str
    words: tuple[str, ...]


def parsed(given: Iterable[str]) -> tuple[Option, ...]:
    found = []
    rest = iter(given)
    for word in rest:
        written, equals, value = word.partition("=")
        if word[:2] in SHORT and len(word) > len("-i"):
            written, equals, value = word[:2], "=", word[2:].lstrip("=")
        name = spelled(written)
        following = tuple(islice(rest, 1)) if name in PARSER.with_value and not equals else ()
        found.append(Option(name, value + "".join(following), (word, *following)))
    return tuple(found)


def values(options: Iterable[Option], *names: str) -> list[str]:
    """Return the values of these options in their order: the last counts."""
    return [option.value for option in options if option.name in names]


def without(options: Iterable[Option], names: Iterable[str]) -> tuple[str, ...]:
    """Return the words of all options but these."""
    return tuple(word for option in options if option.name not in names for word in option.words)
