"""Runs a rank's program where what starts the rank takes no note of how it ends, as DeepSpeed's helper for MPICH, which ends with 0
whatever its rank ended with. Says with what a rank has failed, and ends that helper, so that MPI ends the others. A program, not a module:
the user's interpreter runs it on every node, so it imports nothing of ranklaunch and stays with 3.7.

Arguments: the program's own words; --python before them stands for the interpreter that runs this.
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
