"""post_trainjob_status.py JSON: posts a TrainJob's status to Kubeflow Trainer's server, named in the container's
environment.

KUBEFLOW_TRAINER_SERVER_URL is its address, _CA_CERT the file of its certificate authority, _TOKEN the file of the
changing token. The token goes there and nowhere else: not to a redirect's target, and into no message.
"""

from __future__ import annotations

import http.client
import os
import ssl
import sys
import urllib.request

URL, CA, TOKEN = (f"KUBEFLOW_TRAINER_SERVER_{name}" for name in ("URL", "CA_CERT", "TOKEN"))
TIMEOUT_S = 10
MOST_TOKEN = 64 * 1024  # characters
MOST_SAID = 400


class Here(urllib.request.HTTPRedirectHandler):
    """A redirection is an answer like any other that is not the one expected."""

    def redirect_request(self, *_: object) -> None:
        return None


def main() -> None:
    url, authority = os.environ[URL], os.environ.get(CA, "")
    if not url.startswith(("https://", "http://")):
        msg = f"{URL} is no address of a server: expected https://..."
        raise ValueError(msg)
    headers = {"Authorization": f"Bearer {token(os.environ[TOKEN])}", "Content-Type": "application/json"}
    context = ssl.create_default_context(cafile=authority or None) if url.startswith("https:") else None
    opener = urllib.request.build_opener(Here, *([urllib.request.HTTPSHandler(context=context)] if context else []))
    request = urllib.request.Request(url, sys.argv[1].encode(), headers, method="POST")
    with opener.open(request, timeout=TIMEOUT_S):
        pass


def token(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        result = file.read(MOST_TOKEN).strip()
    if not (result.isascii() and result.isprintable()):
        msg = f"{path} is no token: expected one line of ASCII"
        raise ValueError(msg)
    return result


if __name__ == "__main__":
    try:
        main()
    except (OSError, ValueError, KeyError, http.client.HTTPException) as error:
        sys.exit(" ".join(f"{type(error).__name__}: {error}".split())[:MOST_SAID])
