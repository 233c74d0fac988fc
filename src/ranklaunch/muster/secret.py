"""Secret of the job, from which the muster derives its key."""

from __future__ import annotations

from collections.abc import Mapping

from ranklaunch.errors import ConfigError
from ranklaunch.plan.model import Muster
from ranklaunch.system import disk

MOST_SECRET_BYTES = 4096
GUESSED = "the key is derived from the job's name, which others may guess"
HANDED = ", and the nodes exchange ssh keys under it: whoever reaches the port and knows the name can run commands on these nodes"
OWN_KEY = "set RANKLAUNCH_SECRET, to the same value on every node, to keep others out"


def guessed(*, handed: bool) -> str:
    """Return the warning about a job without a secret. handed: the nodes also exchange ssh keys."""
    return f"{GUESSED}{HANDED if handed else ''}; {OWN_KEY}"


def secret(muster: Muster, env: Mapping[str, str]) -> bytes:
    """Return the job's secret, b"" for none. Raises ConfigError if its file is missing, unreadable, not a regular file, or empty."""
    if not muster.secret.startswith("/"):
        return env.get(muster.secret, "").encode(errors="surrogateescape")
    try:
        text = disk.read(disk.readable(muster.secret), MOST_SECRET_BYTES).strip()
    except disk.NotRegularError as error:
        msg = f"RANKLAUNCH_SECRET_FILE: {error}"
        raise ConfigError(msg) from None
    except OSError as error:
        msg = f"RANKLAUNCH_SECRET_FILE={muster.secret}: {error.strerror}"
        raise ConfigError(msg) from None
    if not text:
        msg = f"RANKLAUNCH_SECRET_FILE={muster.secret}: the file is empty; write the job's secret into it"
        raise ConfigError(msg)
    return text
