"""on_terminal.py TERMINAL COMMAND...: executes COMMAND as the leader of a session that TERMINAL controls."""

from __future__ import annotations

import fcntl
import os
import sys
import termios

os.setsid()
fcntl.ioctl(os.open(sys.argv[1], os.O_RDWR), termios.TIOCSCTTY, 0)
os.execvp(sys.argv[2], sys.argv[2:])
