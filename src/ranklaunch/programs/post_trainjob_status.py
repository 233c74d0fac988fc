"""Program that posts a TrainJob's status to Kubeflow Trainer's server.

Argument: the status as JSON. Variables with the prefix KUBEFLOW_TRAINER_SERVER_: URL is the server's address, CA_CERT the file of its
certificate authority, TOKEN the file of the token, which the platform renews. The token is sent to this server only: not to the target of
a redirect, and it appears in no message.
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
MOST_MESSAGE = 400  # characters


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """Handler that follows no redirect: its status code is then an error, like any unexpected answer."""

    def redirect_request(self, *_: object) -> None:
        return None


def main() -> None:
    url, authority = os.environ[URL], os.environ.get(CA, "")
    if not url.startswith(("https://", "http://")):
        msg = f"{URL} is not the address of a server: expected https://..."
        raise ValueError(msg)
    headers = {"Authorization": f"Bearer {token(os.environ[TOKEN])}", "Content-Type": "application/json"}
    context = ssl.create_default_context(cafile=authority or None) if url.startswith("https:") else None
    opener = urllib.request.build_opener(NoRedirects, *([urllib.request.HTTPSHandler(context=context)] if context else []))
    request = urllib.request.Request(url, sys.argv[1].encode(), headers, method="POST")
    with opener.open(request, timeout=TIMEOUT_S):
        pass


def token(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        result = file.read(MOST_TOKEN).strip()
    if not (result.isascii() and result.isprintable()):
        msg = f"{path} has no valid token: expected one line of ASCII"
        raise ValueError(msg)
    return result


if __name__ == "__main__":
    try:
        main()
    except (OSError, ValueError, KeyError, http.client.HTTPException) as error:
        sys.exit(" ".join(f"{type(error).__name__}: {error}".split())[:MOST_MESSAGE])
