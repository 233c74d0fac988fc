"""mail.py EVENT FILE: mails an event of a job to MAIL_TO, by the server SMTP_SERVER (HOST or HOST:PORT).

RANKLAUNCH_ON_EVENT="python3 examples/hooks/mail.py"
"""

from __future__ import annotations

import json
import os
import smtplib
import sys
from email.message import EmailMessage

event, path = sys.argv[-2:]
with open(path, encoding="utf-8") as file:
    document = json.load(file)

message = EmailMessage()
message["To"] = os.environ["MAIL_TO"]
message["From"] = os.environ.get("MAIL_FROM", message["To"])
message["Subject"] = " ".join(f"{event}: {document['reason']}".split())[:200]
culprit = document.get("culprit") or {}
message.set_content("\n".join([document["reason"], "", *culprit.get("last_lines", []), "", f"Details: {path}"]))
message.add_attachment(json.dumps(document, indent=1), filename=os.path.basename(path))

host, _, port = os.environ.get("SMTP_SERVER", "localhost").partition(":")
with smtplib.SMTP(host, int(port or 25), timeout=20) as server:
    server.send_message(message)
print(f"mailed to {message['To']}")
