"""webhook.py EVENT FILE: posts an event of a job to the address in WEBHOOK_URL.

RANKLAUNCH_ON_EVENT="python3 examples/hooks/webhook.py"

The body has `text`, which chat services show, and the event's whole JSON as `document`.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.request

event, path = sys.argv[-2:]
with open(path, encoding="utf-8") as file:
    document = json.load(file)

host = document.get("suspect_host")
ended = f"{document['outcome']} with exit code {document['exit_code']}: " if "outcome" in document else ""
text = f"{event}: {ended}{document['reason']}{'; leave out ' + host['host'] if host else ''}"
body = json.dumps({"text": text, "event": event, "document": document}).encode()
request = urllib.request.Request(os.environ["WEBHOOK_URL"], body, {"Content-Type": "application/json"})
with urllib.request.urlopen(request, timeout=20) as answer:
    print(f"posted: {answer.status}")
