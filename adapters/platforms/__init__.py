"""The platforms: the rows of platforms.toml, in the order in which they are tried on an environment."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

from ranklaunch.adapters.platforms.shared.base import NAMING, PER_RANK, PLATFORM_FILE, Place, Shipped, holds, per_rank, row_of
from ranklaunch.env.job import Job, Program
from ranklaunch.env.reader import Reader
from ranklaunch.env.reader import Variable as Variable
from ranklaunch.env.settings import PLATFORM
from ranklaunch.errors import ConfigError, nearest
from ranklaunch.verdict import folders


class Platforms(Mapping[str, Place]):
    """Platforms by name, in their order. Each is made on first use: a start needs only one."""

    def __init__(self, rows: Sequence[Shipped]) -> None:
        self.rows = {each.name: each for each in rows}
        self._places: dict[str, Place] = {}

    def __getitem__(self, name: str) -> Place:
        if name not in self._places:
            self._places[name] = _place(self.rows[name])
        return self._places[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def may_be(self, name: str, reader: Reader) -> bool:
        """Return False if the row alone shows that the environment is not this platform's; its class need not be imported then."""
        row = self.rows[name]
        names = "\n" + "\n".join(reader.env)
        signed = all(holds(each, reader.env, reader.files.exists) for each in row.sign)
        begins = any(reader.files.is_dir(sign) if sign.startswith("/") else f"\n{sign}" in names for sign in row.begins)
        return signed and (begins or not row.begins)


def _place(row: Shipped) -> Place:
    kind: type[Place] = getattr(import_module(f"{__name__}.{row.name}"), row.kind) if row.kind else Place
    return kind(row)


def _shipped() -> tuple[Shipped, ...]:
    loader: Any = __spec__.loader  # pkgutil.get_data would import typing
    return tuple(row_of(Shipped, each) for each in json.loads(loader.get_data(f"{__file__.rpartition('/')[0]}/platforms.json")))


PLATFORMS = Platforms(_shipped())


def known(reader: Reader) -> Platforms:
    """Return the platforms of the user's own file, if any, then the shipped ones."""
    if not reader.is_set(PLATFORM_FILE):
        return PLATFORMS
    from ranklaunch.adapters.platforms.shared import user_rows  # imported here: few users have a file of their own

    return _with_own(user_rows.read(reader, PLATFORMS.rows))


@functools.lru_cache(maxsize=4)
def _with_own(rows: tuple[Shipped, ...]) -> Platforms:
    return Platforms((*rows, *PLATFORMS.rows.values()))


def program(reader: Reader, words: Sequence[str]) -> Program | None:
    return _recognised(reader).program(reader, words)


def failure_file(reader: Reader) -> str:
    return _recognised(reader).failure_file(reader)


def attempt_dir(reader: Reader) -> str:
    """Return the folder of this attempt's logs for a job that cannot be read."""
    platform = _recognised(reader)
    return folders.attempt(platform.log_dir(reader), platform.attempt(reader))


def _recognised(reader: Reader) -> Place:
    """Return the requested platform, else the first that recognises the environment; local if the requested platform does not exist."""
    _offer_hosts(reader)
    platforms, name = known(reader), _requested(reader) or detected(reader)
    return platforms[name if name in platforms else "local"]


def _offer_hosts(reader: Reader) -> None:
    """Offer the hosts of --hosts-from or --hosts-command."""
    if any(map(reader.is_set, NAMING)):
        from ranklaunch.adapters.platforms.shared import host_command  # imported here: most jobs have neither

        host_command.offer(reader)


def _requested(reader: Reader) -> str:
    return reader.get(PLATFORM).strip().lower()


def detected(reader: Reader) -> str:
    """Return the name of the first platform that recognises the environment."""
    platforms = known(reader)
    return next(name for name in platforms if platforms.may_be(name, reader) and platforms[name].detect(reader))


def read(reader: Reader, program: Program) -> Job:
    """Return the job, read by its platform."""
    platform = choose(reader)
    job = platform.read(reader, program)
    if per_rank(reader) and not job.among:
        reader.problem(f"{reader.described(PER_RANK)}: platform {platform.NAME} shows no tasks here that are a rank each: leave it out")
    return job


def choose(reader: Reader) -> Place:
    """Return the requested platform, else the first that recognises the environment. Raise ConfigError for an unknown name."""
    _offer_hosts(reader)
    platforms, name = known(reader), _requested(reader)
    if name and name not in platforms:
        msg = f"{reader.source(PLATFORM)}={name!r}: expected one of {', '.join(platforms)}{nearest(name, platforms)}"
        raise ConfigError(msg)
    if not name:
        name = detected(reader)
        reader.note(PLATFORM, name, "environment")
    return platforms[name]
