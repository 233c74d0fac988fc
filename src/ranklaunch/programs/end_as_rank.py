"""Wrapper of a rank's program for launchers that ignore the rank's exit code: DeepSpeed's helper for MPICH always exits with 0.

The wrapper prints the exit code of a failed rank and kills the helper, so that MPI ends the remaining ranks. The user's interpreter runs
this file on every node. So it imports nothing of ranklaunch and works with Python 3.7.

Arguments: the program's command; a first word --python stands for this interpreter.
"""

import os
import signal
import subprocess
import sys
from typing import List  # noqa: UP035 - Python 3.7


def main(words: List[str]) -> int:  # noqa: UP006 - Python 3.7
    command = [sys.executable, "-u", *words[1:]] if words[0] == "--python" else words
    helper = os.getppid()
    try:
        code = subprocess.call(command)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        code = 127 if isinstance(error, FileNotFoundError) else 126
    if code:
        # One write: print would write an unbuffered line in two parts, and output of another rank could come between them.
        os.write(2, f"rank {os.environ.get('RANK', '')} exits with return code = {code}\n".encode())
    if code and os.getppid() == helper:
        os.kill(helper, signal.SIGKILL)
    return 128 - code if code < 0 else code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
