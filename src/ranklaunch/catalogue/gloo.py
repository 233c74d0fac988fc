"""Gloo, PyTorch's collective operations on the host."""

from __future__ import annotations

from ranklaunch.catalogue.entry import CAUSE, CONSEQUENCE, KnownError

ERRORS: tuple[KnownError, ...] = (
    KnownError(
        "gloo-peer-connection-lost",
        r"gloo/transport/[\w/]{1,40}\.(?:cc|h):\d{1,5}\] (?:Connection closed by peer|Read error|Write error|writev? \[|read \[)",
        CONSEQUENCE,
        "The connection to another rank broke: mostly that rank has died.",
        "Look at the rank that failed first.",
        "https://github.com/pytorch/pytorch/issues/75512",
    ),
    KnownError(
        "gloo-timeout",
        (
            r"gloo/transport/[\w/]{1,40}\.(?:cc|h):\d{1,5}\] (?:Timed out waiting|Application timeout)|"
            r"Application timeout caused pair closure"
        ),
        CONSEQUENCE,
        "Another rank did not send or receive in time; mostly it has died, hangs or is late, but this rank may be the late one.",
        "Look at the rank that failed first, or that did not report this.",
        "https://github.com/FoundationVision/VNext/issues/9",
    ),
    KnownError(
        "gloo-connect-failed",
        r"Gloo connectFullMesh failed|gloo/transport/[\w/]{1,40}\.(?:cc|h):\d{1,5}\] (?:connect \[|Connect timeout|timed out connecting)",
        CONSEQUENCE,
        "Gloo could not connect to another rank: it has died, is late, or advertises an address that cannot be reached.",
        "Look at the rank that failed first; then check GLOO_SOCKET_IFNAME and what the hosts' names resolve to.",
        "https://github.com/pytorch/pytorch/issues/108732",
    ),
    KnownError(
        "gloo-interface-not-found",
        r"Unable to find address for: |Unable to find interface for: |makeDeviceForInterface\(\)",
        CAUSE,
        "Gloo found no address for the interface or host name that it was given.",
        "Check GLOO_SOCKET_IFNAME, and that the host's own name resolves.",
        "https://github.com/pytorch/gloo/blob/aeaea26ca72896ac85e04b7678e5835a903f1e1f/gloo/transport/tcp/device.cc",
    ),
)
# What says little: any other entry of the same kind wins.
VAGUE: tuple[KnownError, ...] = (
    KnownError(
        "gloo-call-failed",
        r"gloo/(?:transport|common|rendezvous)/[\w/]{1,40}\.(?:cc|h):\d",
        CONSEQUENCE,
        "A call of Gloo failed; mostly because of another rank.",
        "Look at the rank that failed first.",
        "https://github.com/pytorch/pytorch/issues/78514",
    ),
)
