"""Whether the last that a rank wrote are the words of an exception that was ending it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ranklaunch.catalogue.uncaught import CERTAIN, LIKELY, ends_by_exception
from ranklaunch.values import replace
from ranklaunch.verdict import blame, reading
from ranklaunch.verdict.blame import Suspect
from ranklaunch.verdict.model import Culprit, KnownError

PLAIN = 'Traceback (most recent call last):\n  File "t.py", line 5, in <module>\n    load(17)\nValueError: no image 17\n'


def by_hook(text: str, mark: str = "[rank3]: ") -> str:
    """As PyTorch's hook for uncaught exceptions writes it."""
    return "\n".join(line and f"{mark}{line}" for line in text.split("\n"))


OF_HOOK = by_hook(PLAIN)
IN_FUNCTION = PLAIN.replace("<module>", "main")
CHAINED = f"{PLAIN}\nDuring handling of the above exception, another exception occurred:\n\n{PLAIN.replace('ValueError', 'OSError')}"
BY_MINDSPORE = "[INFO] DISTRIBUTED(8,7fe2f1ffb6c0,python):2026-11-24-01:07:55.233.056 [a.cc:367] Start] Event base dispatch success!\n"
WARNED = "[W1124 03:46:29.285552 ProcessGroup.cpp:1] Warning: destroy_process_group() was not called\n"


@pytest.mark.parametrize(
    ("text", "how"),
    [
        (PLAIN, LIKELY),
        (f"step 4\n{PLAIN}", LIKELY),
        (f"2026-11-24 03:46:29,285 INFO trainer: step 4\n{CHAINED}", LIKELY),
        (f"step 4\n{OF_HOOK}{WARNED}", CERTAIN),
        (f"{OF_HOOK}Exception ignored in atexit callback: <function f at 0x7f>\n{PLAIN}", CERTAIN),
        (f"{PLAIN}Error in atexit._run_exitfuncs:\n{PLAIN}", LIKELY),
        (f"{PLAIN}wandb: Run history:\nwandb: loss 0.5\n", LIKELY),
        (f"{OF_HOOK[:-1]}\n[rank3]: in shard 3\n[rank3]: of 8\n", CERTAIN),  # a message of several lines
        (by_hook(IN_FUNCTION + CHAINED), CERTAIN),
        (by_hook(OF_HOOK), CERTAIN),  # of a second process group
        (f"  7%|#    | 7/100 [00:01<00:09]{OF_HOOK}", CERTAIN),
        (by_hook(PLAIN.replace("t.py", "<frozen runpy>").replace("<module>", "_run_module_as_main")), CERTAIN),
        (by_hook(f"{PLAIN[:-1]} in DataLoader worker process 0.\nOriginal {IN_FUNCTION}"), CERTAIN),
        (f"[rank3]: {PLAIN}", LIKELY),  # which a program may print of what it has caught, as those below
        (f"[rank 3] {PLAIN}", LIKELY),
        (by_hook(PLAIN, "[rank 3] "), LIKELY),
        (by_hook(PLAIN, "[rank3]:"), LIKELY),
        (by_hook(PLAIN, "[rank2]: "), LIKELY),
        (by_hook(IN_FUNCTION), LIKELY),
        (by_hook(PLAIN + CHAINED.replace("<module>", "main")), LIKELY),
        ("".join(f"[rank3]: {line}\n" for line in CHAINED.splitlines()), LIKELY),
        (OF_HOOK.replace("[rank3]:     load", "    load"), LIKELY),
        (f"{OF_HOOK}[rank3]: \n", CERTAIN),
        (OF_HOOK.replace("no image 17", "worker 3 died with exit code 1"), CERTAIN),
        (PLAIN.replace("no image 17", "Command '['false']' returned non-zero exit status 1."), LIKELY),
        (f"{PLAIN}{BY_MINDSPORE}{BY_MINDSPORE}", LIKELY),
        (f"{PLAIN}sample 17 left out\n", ""),
        (f"E1124 04:50:00.123456 140 data.py:33] sample 17 is unreadable\n{PLAIN}", ""),
        (f"\x1b[32m2026-11-24\x1b[0m | \x1b[31m\x1b[1mERROR\x1b[0m | sample 17\n{PLAIN}", ""),
        (f"{PLAIN}step 5\nstep 6\n" + "step 7\n" * 12, ""),  # it went on
        (f"  7%|#    | 7/100 [00:01]\r{PLAIN}" + "".join(f"\r {n}%|#    | {n}/100 [00:01<00:09]" for n in (10, 11, 12)), ""),
        (f"  7%|#    | 7/100 [00:01<00:09]{PLAIN}\r  8%|#    | 8/100 [00:01<00:09]\n", LIKELY),
        (f"2026-11-24 03:46:29,285 ERROR loader: cannot load 17, going on\n{PLAIN}", ""),
        (f"WARNING:root:skipped\n{CHAINED}", ""),
        (f"Exception in thread Thread-1:\n{PLAIN}", ""),
        ("Traceback (most recent call last):\n  File", ""),  # not ended
        ("step 5\n", ""),
        ("", ""),
    ],
)
def test_how_it_ends(text: str, how: str) -> None:
    assert ends_by_exception(text, 3)[0] == how


@pytest.mark.parametrize("mark", ["[x] ", "[0] ", "2026-11-25 13:00:00 ", "13:00:0%d.123 ", "r0: ", "n7 %d.5s | "])
@pytest.mark.parametrize(("text", "how"), [(f"step 4\n{PLAIN}", LIKELY), (f"step 4\n{OF_HOOK}{WARNED}", CERTAIN), (f"{PLAIN}step 5\n", "")])
def test_how_it_ends_behind_a_filter(mark: str, text: str, how: str) -> None:
    marked = "".join(f"{mark.replace('%d', str(number))}{line}\n" for number, line in enumerate(text.splitlines()))
    assert ends_by_exception(marked, 3) == ends_by_exception(text, 3)
    assert ends_by_exception(marked, 3)[0] == how


# Of its second process group, and of one.
HOOKED = """
import os, sys
import torch.distributed as dist
if os.fork():
    os.wait()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    dist.destroy_process_group()
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
def load():
    raise KeyError("no image 17\\n\\nof 8")
try:
    load()
except KeyError as error:
    if "chained" in sys.argv:
        raise RuntimeError("no data\\n\\nof 8") from error
    raise
"""


@pytest.mark.processes
@pytest.mark.training
@pytest.mark.parametrize("how", ["single", "chained"])
def test_pytorchs_hook_is_known(how: str, tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(HOOKED)
    command = [sys.executable, str(program), how]
    said = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240, cwd=tmp_path).stderr
    of_one, _, of_two = said.partition("[rank0]: [rank0]: Traceback")
    assert [ends_by_exception(text, 0)[0] for text in (of_one, f"[rank0]: [rank0]: Traceback{of_two}")] == [CERTAIN, CERTAIN], said
    assert ends_by_exception(of_one, 1)[0] != CERTAIN  # rank 1 tells of rank 0


WORKER = f"{PLAIN.replace('no image 17', 'Caught ValueError in DataLoader worker process 0.')}Original {PLAIN}"


@pytest.mark.parametrize(
    ("before", "words"), [(f"{PLAIN}step 4\n", OF_HOOK), ("WARNING:root:skipped\n" + PLAIN, PLAIN), ("step 4\n", CHAINED), ("", WORKER)]
)
def test_the_words_that_ended_it_are_the_last_exceptions(before: str, words: str) -> None:
    assert ends_by_exception(before + words, 3)[1] == "\n".join(line for line in words.splitlines() if line)


def suspect(rank: int, at: float, error: str = "", *, late: bool = False, signal: str | None = None, code: int = 1) -> Suspect:
    known = KnownError(error, "cause", "", "", "", "") if error else None
    return Suspect(0, at, "failed", code, "", Culprit(0, rank, None, code, signal, False, (), error=known), late=late)


@pytest.mark.parametrize(
    ("other", "first"),
    [
        (suspect(0, 2.0), 1),  # nothing is known of why
        (suspect(0, 2.0, "torch-process-group-left"), 1),
        (suspect(0, 2.0, "python-uncaught-exception"), 0),
        (suspect(0, 2.0, signal="SIGABRT"), 1),
        (suspect(0, 2.0, signal="SIGSEGV"), 0),
        (suspect(0, 2.0, signal="SIGTERM"), 0),
        (suspect(0, 2.0, code=3), 0),  # on purpose
        (suspect(0, 0.5), 0),
        (Suspect(0, 2.0, "failed", 75, "waited 600 s for node 1"), None),
    ],
)
def test_one_that_is_late_counts_where_nobody_else_has_a_cause(other: Suspect, first: int | None) -> None:
    found = blame.ordered([suspect(1, 1.0, "python-uncaught-exception", late=True), other])[0].culprit
    assert (found and found.rank) == first


def test_a_failure_that_it_may_have_caught_is_noted_beside_a_crash() -> None:
    raised = suspect(1, 1.0, "python-uncaught-exception", late=True)
    assert raised.culprit
    assert raised.culprit.error
    raised = replace(raised, culprit=replace(raised.culprit, error=replace(raised.culprit.error, line="KeyError: 'a'")))
    crash = suspect(0, 1.5, signal="SIGSEGV", code=139)
    found = blame.judge([raised, crash])
    assert found.exit_code == 139
    assert found.notes == ("0.5 s before, rank 1 on node 0 had said KeyError: 'a', which it may have caught",)
    assert crash.culprit
    too = replace(crash, culprit=replace(crash.culprit, last_lines=("KeyError: 'a'", "going on")))
    assert not blame.judge([raised, too]).notes


def test_it_crosses_the_muster() -> None:
    late = suspect(1, 1.0, late=True)
    assert reading.suspect(blame.as_message(late)) == late
    old = blame.as_message(late)
    del old["late"]  # of an older node
    assert not reading.suspect(old).late
