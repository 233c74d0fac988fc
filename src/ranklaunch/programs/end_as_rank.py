"""Wrapper of a rank's program for starters that ignore the rank's end: DeepSpeed's helper for MPICH always ends with 0. Writes the exit
code of a failed rank, and ends the helper, to let MPI end the remaining ranks. A program, not a module: the user's interpreter runs
the file on every node, so the file imports nothing of ranklaunch and stays with 3.7.

Arguments: the program's own words; --python before them stands for this interpreter.
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
        # At once: what another rank writes would come between the two parts that print makes of a line where output has no buffer.
        os.write(2, f"rank {os.environ.get('RANK', '')} exits with return code = {code}\n".encode())
    if code and os.getppid() == helper:
        os.kill(helper, signal.SIGKILL)
    return 128 - code if code < 0 else code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
