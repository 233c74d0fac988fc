"""Stacks that Python writes because ranklaunch sends SIGABRT do not reach the console."""

from __future__ import annotations

import signal
import subprocess
import sys

from ranklaunch.output.abort_stacks import WithoutStacks
from ranklaunch.output.pipe import Output

CODE = "import threading, time, os; threading.Thread(target=time.sleep, args=(600,), daemon=True).start(); os.abort()"


def test_stacks_of_a_real_process_are_hidden() -> None:
    ended = subprocess.run([sys.executable, "-X", "faulthandler", "-c", CODE], stderr=subprocess.PIPE, check=False)
    assert ended.returncode == -signal.SIGABRT
    assert b"most recent call first" in ended.stderr
    shown: list[bytes] = []
    output = Output((), "[rank 3] ", lambda *parts: shown.append(b"".join(parts)), lambda: 0.0, lambda text: None)
    output.feed(b"Fatal Python error: Aborted\n")
    output.hide_stacks()
    output.feed(b"epoch 1\nsaving")
    output.feed(b" done\n" + ended.stderr + b"a word of its child\n")
    assert b"".join(shown) == b"".join(
        b"[rank 3] %s\n" % line for line in (b"Fatal Python error: Aborted", b"epoch 1", b"saving done", b"a word of its child")
    )
    assert ended.stderr in output.tail


def test_other_fatal_errors_are_shown() -> None:
    shown: list[bytes] = []
    sink = WithoutStacks(lambda *parts: shown.append(b"".join(parts)), b"")
    sink(b"Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f (most recent call first):\n", b'  File "a.py", line 1\n')
    assert b"".join(shown).count(b"\n") == 4
