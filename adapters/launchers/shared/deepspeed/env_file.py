"""Variables for the ranks of several nodes in files of the user's: .deepspeed_env in the home folder and in the working folder, or what
DS_ENV_FILE calls it. DeepSpeed reads them only where its runner reaches the nodes; here they count wherever there are several."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ranklaunch.files import absolute
from ranklaunch.read import parse
from ranklaunch.read.job import Job
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.showing import begun

NAME = Variable(
    "deepspeed_env", ("DS_ENV_FILE",), parse.text, ".deepspeed_env",
    "name of files with variables for the ranks of several nodes, NAME=VALUE lines: in the home folder, then in the working folder",
    per_node=True,
)  # fmt: skip
_LINE = re.compile(r"\s*(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)\s*=(?P<value>.*)|#.*)?")  # without a name: nothing, or a comment
_REFERENCE = re.compile(r"\$(\{)?([A-Za-z_][A-Za-z0-9_]*)(?(1)\})")
_MOST_BYTES = 1024 * 1024


def read(job: Job, reader: Reader) -> dict[str, str]:
    """Return the variables as they are written. The working folder's file comes after the home folder's."""
    if len(job.nodes) == 1:
        return {}
    name = next((candidate.value for candidate in reader.candidates(NAME)), NAME.default)
    home = reader.env.get("HOME") or reader.account.home
    merged: dict[str, str] = {}
    sources = []
    for folder in (home, job.folder):
        path = absolute(name, absolute(folder, reader.cwd))
        values = _values(reader, path)
        if values:
            sources.append(path)
        merged.update(values)
    if merged:
        reader.ledger.note(NAME.value, ", ".join(merged), ", then ".join(sources))
    return merged


def expanded(values: Mapping[str, str], env: Mapping[str, str]) -> dict[str, str]:
    """Replace the variables that values name, as the shell does by which DeepSpeed hands them over."""
    known = dict(env)
    for name, value in values.items():
        known[name] = _REFERENCE.sub(lambda reference: known.get(reference[2], ""), value)
    return {name: known[name] for name in values}


def _values(reader: Reader, path: str) -> dict[str, str]:
    try:
        text = reader.files.text(path, _MOST_BYTES) or ""
    except ValueError as error:
        reader.problem(f"{path}: {error}")
        return {}
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        parts = _LINE.fullmatch(line)
        if not parts:
            reader.problem(f"{path}, line {number}: expected NAME=VALUE, found {begun(line.strip())}")
        elif parts["name"]:
            found[parts["name"]] = parts["value"].strip()
    return found
