"""post_trainjob_status.py JSON: posts a TrainJob's status to the server that Kubeflow Trainer names in the container's environment.

KUBEFLOW_TRAINER_SERVER_URL is its address, _CA_CERT the file of its certificate authority, _TOKEN the file of the token, which changes.
"""

from __future__ import annotations

import os
import ssl
import sys
import urllib.request

URL, CA, TOKEN = (f"KUBEFLOW_TRAINER_SERVER_{name}" for name in ("URL", "CA_CERT", "TOKEN"))
TIMEOUT_S = 10


def main() -> None:
    url, authority = os.environ[URL], os.environ.get(CA, "")
    with open(os.environ[TOKEN], encoding="utf-8") as file:
        headers = {"Authorization": f"Bearer {file.read().strip()}", "Content-Type": "application/json"}
    context = ssl.create_default_context(cafile=authority or None) if url.startswith("https:") else None
    request = urllib.request.Request(url, sys.argv[1].encode(), headers, method="POST")
    with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=context):
        pass


if __name__ == "__main__":
    try:
        main()
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"{type(error).__name__}: {error}")
