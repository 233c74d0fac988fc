"""The secret from which the key of the muster is made."""

from __future__ import annotations

from collections.abc import Mapping

from ranklaunch.errors import ConfigError
from ranklaunch.plan.model import Muster
from ranklaunch.system import disk

MOST_SECRET_BYTES = 4096


def secret(muster: Muster, env: Mapping[str, str]) -> bytes:
    """Raises ConfigError where it is in a file that is not there, is none, or says nothing."""
    if not muster.secret.startswith("/"):
        return env.get(muster.secret, "").encode(errors="surrogateescape")
    try:
        text = disk.read(disk.given(muster.secret), MOST_SECRET_BYTES).strip()
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
