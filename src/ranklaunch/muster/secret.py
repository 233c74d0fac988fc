"""The secret from which the key of the muster is made."""

from __future__ import annotations

from collections.abc import Mapping

from ranklaunch.errors import ConfigError
from ranklaunch.plan.model import Muster
from ranklaunch.system import disk

MOST_SECRET_BYTES = 4096
GUESSED = "its key is derived from the job's name, which others may guess"
HANDED = ", and keys for ssh are handed over under it: whoever reaches its port and knows the name can have commands run on these nodes"
OWN_KEY = "RANKLAUNCH_SECRET, the same on every node, keeps them out"


def guessed(*, handed: bool) -> str:
    """Warning about a job without a secret. handed: the nodes also exchange keys for ssh."""
    return f"{GUESSED}{HANDED if handed else ''}; {OWN_KEY}"


def secret(muster: Muster, env: Mapping[str, str]) -> bytes:
    """Raises ConfigError where it is in a file that is not there, is none, or says nothing."""
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
        msg = f"RANKLAUNCH_SECRET_FILE={muster.secret}: it is empty"
        raise ConfigError(msg)
    return text
