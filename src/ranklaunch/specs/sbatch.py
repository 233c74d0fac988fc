"""Table from options of sbatch to keys of a specification, for hints."""

from __future__ import annotations

import re
from collections.abc import Mapping

# Options by key. A short option follows its long one.
BY_KEY: Mapping[str, str] = {
    "name": "job-name J",
    "nodes": "nodes N",
    "devicesPerNode": ("gpus G gpus-per-node gpus-per-task gpus-per-socket ntasks n ntasks-per-node tasks-per-node"),
    "workingDir": "chdir D",
    "resources.cpu": "cpus cpus-per-task c",
    "resources.memory": "mem mem-per-cpu",
    "restart.maxRestarts": "requeue no-requeue",
    "slurm.account": "account A",
    "slurm.output": "output o",
    "slurm.partition": "partition p",
    "slurm.qos": "qos q",
    "slurm.saveBefore": "signal",
    "slurm.time": "time t",
    "env": "export",
}
DEVICES = "gres"
# Options without a key of their own: slurm.directives takes them.
WITH_VALUE = (
    "array a begin b clusters M comment constraint C deadline dependency d error e exclude x "
    "extra-node-info features licenses L mail-type mail-user nice nodefile F nodelist w open-mode "
    "prefer priority profile reservation switches time-min tmp wckey"
)
SWITCHES = "contiguous exclusive hold H oversubscribe s overcommit O"
NEEDS_VALUE = frozenset(word for word in WITH_VALUE.split() if len(word) > 1) - {"nice"}


def meant(option: str) -> str:
    """Return the key for an option of sbatch, such as `--array`, `-N` or `mailType`; "" without one."""
    word = option.lstrip("-")
    if option.startswith("-") and not option.startswith("--"):
        return _OF_WORD.get(word, "") if len(word) == 1 else ""
    return _OF_WORD.get(_plain(word), "") if len(word) > 1 else ""


def hint(path: str) -> str:
    """Return the end of the message about an unknown key below `slurm` that is an option of sbatch."""
    group, _, name = path.rpartition(".")
    key = meant(name) if group == "slurm" else ""
    return f"; here it is {key}" if key else ""


def _plain(word: str) -> str:
    return re.sub("[-_]", "", word).lower()


def _words() -> dict[str, str]:
    """Return the key for the plain form of each option."""
    keys = {word: key for key, words in BY_KEY.items() for word in words.split()}
    keys[DEVICES] = f'slurm.devices=none and slurm.directives=["--{DEVICES}=..."]'
    for words, value in ((WITH_VALUE, "=..."), (SWITCHES, "")):
        long = ""
        for word in words.split():
            long = word if len(word) > 1 else long
            keys[word] = f'slurm.directives=["--{long}{value}"]'
    return {_plain(word) if len(word) > 1 else word: key for word, key in keys.items()}


_OF_WORD = _words()
