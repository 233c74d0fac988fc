"""Variables for the ranks of several nodes in files of the user's: .deepspeed_env in the home folder and in the working folder, or what
DS_ENV_FILE calls it. DeepSpeed reads them only where its runner reaches the nodes; here they count wherever there are several."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ranklaunch.files import absolute, join
from ranklaunch.read import parse
from ranklaunch.read.job import Job
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.showing import begun

NAME = Variable(
    "deepspeed_env", ("DS_ENV_FILE",), parse.text, ".deepspeed_env",
    "name of files with variables for the ranks of several nodes, NAME=VALUE lines: in the home folder, then in the working folder",
    per_node=True,
)  # fmt: skip
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REFERENCE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")
_MOST_BYTES = 1024 * 1024


def read(job: Job, reader: Reader) -> dict[str, str]:
    """By name, as it is written."""
    if len(job.nodes) == 1:
        return {}
    name = reader.candidates(NAME)[0].value if reader.given(NAME) else NAME.default
    home = reader.env.get("HOME", "") or reader.account.home
    paths = dict.fromkeys(absolute(join(folder, name) if not name.startswith("/") else name, reader.cwd) for folder in (home, job.folder))
    found = {path: _lines(reader, path) for path in paths}
    merged = {variable: value for lines in found.values() for variable, value in lines.items()}
    if merged:
        reader.ledger.note(NAME.value, ", ".join(merged), ", then ".join(path for path, lines in found.items() if lines))
    return merged


def expanded(values: Mapping[str, str], env: Mapping[str, str]) -> dict[str, str]:
    """With the variables of this node that they name, as the shell puts them in by which DeepSpeed hands them over."""
    known = dict(env)
    for name, value in values.items():
        known[name] = _REFERENCE.sub(lambda found: known.get(found[1] or found[2], ""), value)
    return {name: known[name] for name in values}


def _lines(reader: Reader, path: str) -> dict[str, str]:
    try:
        text = reader.files.text(path, _MOST_BYTES) or ""
    except ValueError as error:
        reader.problem(f"{path}: {error}")
        return {}
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        name, equals, value = line.strip().partition("=")
        if not name or name.startswith("#"):
            continue
        if not equals or not _VARIABLE.fullmatch(name.strip()):
            reader.problem(f"{path}, line {number}: expected NAME=VALUE, found {begun(line.strip())}")
            continue
        found[name.strip()] = value.strip()
    return found
