"""TensorFlow with servers: parameter servers and workers."""

from __future__ import annotations

from ranklaunch.catalogue.entry import CONSEQUENCE, KnownError

# Said every ten seconds for as long as it is so: it counts only where nothing else was said after it.
WAITS: tuple[KnownError, ...] = (
    KnownError(
        "tensorflow-waits-for-peer",
        r"CreateSession still waiting for response from worker: /job:",
        CONSEQUENCE,
        "A session waits for a ps or worker that has ended, is late, or cannot be reached.",
        (
            "Look at the container that the line names and, where it has ended with 0, give the session device_filters; "
            "check that the port of its address is open."
        ),
        "https://github.com/tensorflow/tensorflow/issues/13337",
    ),
)
