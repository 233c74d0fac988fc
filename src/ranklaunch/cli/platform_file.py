"""Notes of `ranklaunch check` about the user's own platforms (RANKLAUNCH_PLATFORM_FILE) and their reading of the environment."""

from __future__ import annotations

from collections.abc import Iterator

from ranklaunch.adapters.platforms.shared import user_rows
from ranklaunch.adapters.platforms.shared.base import PLATFORM_FILE, holds
from ranklaunch.plan.model import Plan
from ranklaunch.plan.planning import Request

_SHOWN = ("nodes", "node_index", "hosts", "first_host", "slots", "job_name", "attempt")  # values of a platform, by their names in plans


def notes(request: Request, plan: Plan) -> Iterator[str]:
    """Yield a line for each row: its values with their sources, or the condition of its sign that does not hold."""
    reader = request.reader()
    if not reader.is_set(PLATFORM_FILE):
        return
    for row in user_rows.read(reader, ()):
        missing = next((each for each in row.sign if not holds(each, request.env, request.files.exists)), "")
        values = [f"{each.name}={each.value} [{each.source}]" for each in plan.values if each.name in _SHOWN and each.value]
        if plan.job.platform == row.name:
            yield f"place {row.name}: {', '.join(values)}"
        elif missing:
            yield f"place {row.name} is not recognised: sign {missing!r} does not hold"
        else:
            yield f"place {row.name} is recognised, but platform {plan.job.platform} is set, or is tried before"
