"""The catalogue of known errors, against what users have really seen.

tests/catalogue/excerpts/ has excerpts of logs from public threads and documentation, each with its source, and with the entry and the kind
that the thread makes right. They are shortened; names of users and hosts, addresses and long paths are replaced. Entries without an
excerpt have a line below that is made after the source or the documentation of the program that writes it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import helpers
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ranklaunch.catalogue import (
    CAUSE,
    CONSEQUENCE,
    STOPPED,
    KnownError,
    find,
    findings,
    shipped,
)
from ranklaunch.catalogue.literals import needed
from ranklaunch.catalogue.matcher import read as read_output
from ranklaunch.catalogue.matcher import with_message
from ranklaunch.plan.planning import every_variable
from testbench import places

known_errors = places.module("tools/known_errors.py")
FOLDER = Path(__file__).parent / "excerpts"
ERRORS = shipped()
BY_NAME = {error.name: error for error in ERRORS}
URL = re.compile(r"https://[\w.-]+\.[a-z]+/[\w./~#%-]+")


class Excerpt(NamedTuple):
    source: str
    error: str
    kind: str
    text: str


def read(path: Path) -> Excerpt:
    header, _, text = path.read_text(encoding="utf-8").partition("\n\n")
    fields = dict(line.split(": ", 1) for line in header.splitlines())
    return Excerpt(**fields, text=text)


EXCERPTS = {path.stem: read(path) for path in sorted(FOLDER.glob("*.txt"))}
# What ranks, and launchers, that started, trained and ended well have written: shortened, with other names of hosts and paths.
STARTS = {path.stem: path.read_text(encoding="utf-8") for path in sorted((FOLDER / "starts").glob("*.txt"))}
MOST_OF_LEAST = 16  # how much longer than the least a hostile text of 32 KiB may take, on a machine where others work too
FRAMES = 'Traceback (most recent call last):\n  File "train.py", line 3, in main\n    step()\n'

# What the program raises stands in its source too, where it says less.
RAISED = """Traceback (most recent call last):
  File "train.py", line 3, in main
    raise RuntimeError(f"CUDA out of memory. Tried to allocate {size}")
RuntimeError: CUDA out of memory. Tried to allocate 2 GiB
"""

SAMPLES = {name: lines[0] for name, lines in known_errors.examples().items() if lines}


def name_of(text: str) -> str | None:
    finding = find(text)
    return finding.error.name if finding else None


def line_of(text: str) -> str | None:
    finding = find(text)
    return finding.line if finding else None


# The data


@helpers.for_each(EXCERPTS)
def test_excerpt_is_classified(excerpt: Excerpt) -> None:
    finding = find(excerpt.text)
    assert finding
    assert (finding.error.name, finding.error.kind) == (excerpt.error, excerpt.kind)
    assert finding.line in re.sub(r"\x1b\[[0-9;]*m", "", excerpt.text)


@helpers.for_each(EXCERPTS)
def test_excerpt_has_its_source(excerpt: Excerpt) -> None:
    assert URL.fullmatch(excerpt.source)
    assert excerpt.text.strip()


@helpers.for_each(list(SAMPLES))
def test_sample_is_classified(name: str) -> None:
    assert name_of(SAMPLES[name]) == name
    assert name_of(f"step 3\n{FRAMES}{SAMPLES[name]}\n") == name


def test_a_wait_that_is_over_is_none() -> None:
    """Whatever ends the process later."""
    waits = EXCERPTS["tensorflow-waits"].text
    assert name_of(f"{waits}\n\n") == "tensorflow-waits-for-peer"
    assert name_of(f"{waits}step 1: loss 2.3\n") is None
    assert name_of(f"{waits}step 1: loss 2.3\n{waits}") == "tensorflow-waits-for-peer"
    assert name_of(f"{waits}{FRAMES}ValueError: loss is nan\n") == "python-uncaught-exception"


@helpers.for_each(STARTS)
def test_what_a_good_start_writes_says_nothing_of_an_end(text: str) -> None:
    """Whatever a rank ends with later, it is not explained by how it began."""
    assert find(text) is None
    assert name_of(f"{text}{FRAMES}KeyError: 'loss'\n") == UNCAUGHT
    assert name_of(f"{text}{LOST}\n") == "gloo-peer-connection-lost"


def test_good_starts_of_every_launcher() -> None:
    of = {name.split("-")[0] for name in STARTS}
    assert of >= {"torchrun", "accelerate", "deepspeed", "megatron", "mpirun", "msrun", "tensorflow"}


def test_a_store_that_did_not_answer_to_the_end() -> None:
    warning = "[W1122 08:03:51.406 socket.cpp:764] [c10d] The client socket has failed to connect to [h0]:29500 (errno: 111)."
    end = "[E1122 08:03:51.406 socket.cpp:818] [c10d] The client socket has failed to connect to any network address of (h0, 29500)."
    assert name_of(f"{warning}\n{end}\n") == "torch-store-connect-failed"
    assert name_of(f"{warning}\n{end}\nstep 1\n") is None


@pytest.mark.parametrize(
    "line",
    [
        "[W1122 08:03:51.406 socket.cpp:764] [c10d] The client socket has failed to connect to [h0]:29500 (errno: 99).",
        "h1:1:2 [0] NCCL INFO NET/Socket : socketPollConnect: connect to 10.0.0.1<5000> returned Connection refused, retrying (1/34)",
        "h1:1:2 [0] NCCL INFO Call to connect to 10.0.0.1<5000> returned Connection refused, retrying",
        "[h1:00114] PMIX ERROR: ERROR in file ../../../../../../src/mca/gds/ds12/gds_ds12_lock_pthread.c at line 169",
    ],
)
def test_what_a_library_gets_over_is_not_what_a_rank_died_of(line: str) -> None:
    assert name_of(f"{line}\n") is None


@pytest.mark.parametrize("end", ["No space left on device (28)", "Success (0)"])
def test_a_loaders_full_shared_memory_is_no_full_disk(end: str) -> None:
    finding = find(f"RuntimeError: unable to allocate shared memory(shm) for file </torch_10_4084109774_0>: {end}\n")
    assert finding is not None
    assert finding.error.name == "torch-dataloader-shared-memory"
    assert all(word in finding.error.remedy for word in ("--shm-size", "emptyDir of medium Memory"))


def test_every_entry_is_exercised_and_only_once_by_a_sample() -> None:
    shown = {excerpt.error for excerpt in EXCERPTS.values()}
    assert shown | set(SAMPLES) == set(BY_NAME)
    assert shown & set(SAMPLES) == set()


@pytest.mark.parametrize(
    ("start", "least"), [("ascend", 15), ("nccl", 10), ("cuda", 8), ("mpi", 5), ("gloo", 5), ("torch", 8), ("python|system", 9)]
)
def test_excerpts_of_every_family(start: str, least: int) -> None:
    assert len([name for name in EXCERPTS if re.match(f"(?:{start})-", name)]) >= least


def test_names_are_unique_and_every_file_is_read() -> None:
    assert len(BY_NAME) == len(ERRORS)
    assert {path.stem for path in known_errors.FOLDER.glob("*.toml")} == set(known_errors.FAMILIES)


def test_what_is_loaded_is_what_people_have_written() -> None:
    is_fresh = known_errors.PATH.read_text(encoding="utf-8") == known_errors.made()
    assert is_fresh, "known.json has other entries than catalogue/*.toml: run make generate"


@helpers.for_each(BY_NAME)
def test_settings_are_those_of_plans(error: KnownError) -> None:
    known = {variable.value for variable in every_variable()} | {"nccl_socket_ifname", "gloo_socket_ifname", "tp_socket_ifname"}
    assert set(error.settings) <= known


@helpers.for_each(BY_NAME)
def test_entry_is_whole(error: KnownError) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", error.name)
    assert error.kind in (CAUSE, CONSEQUENCE, STOPPED)
    assert not (error.retry and error.kind != CAUSE)
    assert URL.fullmatch(error.source)
    for sentence in (error.meaning, error.remedy):
        assert re.fullmatch(r"[A-Za-z/`-].*\.", sentence)
    assert ". " not in error.meaning


# The patterns


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        ("ab+c(?:def|gh)?i", ("ab",)),
        ("x(?:left|right)[0-9]", ("left", "right")),
        (r"a\.b\(|(?i:no)t|de{0,2}fg", ("a.b(", "t", "fg")),
        ("(?<!not )found (?=here)", ("found ",)),
        ("[ab]c?|x", ("",)),
    ],
)
def test_texts_that_a_pattern_needs(pattern: str, texts: tuple[str, ...]) -> None:
    assert needed(pattern) == texts


@helpers.for_each(BY_NAME)
def test_pattern_stays_in_its_line(error: KnownError) -> None:
    """What could match the end of a line, and repetitions without a bound of what could be much."""
    assert not re.search(r"\\s|\\W|\\D|\[\^", error.pattern)
    assert not re.search(r"(?<!\\)[.\])][*+]|\\S[*+]|\{\d*,\}", error.pattern)
    assert not re.compile(error.pattern, re.MULTILINE).search("\n\n")


@helpers.for_each(BY_NAME)
def test_needed_text_is_needed(error: KnownError) -> None:
    """What keeps a pattern from being searched in vain never keeps it from a match."""
    texts = [excerpt.text for excerpt in EXCERPTS.values()] + list(SAMPLES.values())
    for text in texts:
        if re.search(error.pattern, text, re.MULTILINE):
            assert any(each in text for each in error.needed)


def hostile_texts() -> dict[str, str]:
    size = 32768
    pieces = ["x", " ", "[", "(", ":", "1: ", "a-", "0.0.0.0", "\x1b[", "\r", "EI", "error code is ", "hcclRet -> ", "NCCL WARN "]
    pieces += [
        "gloo/transport/tcp/a",
        "listen on ip[",
        "DataLoader worker (pid ",
        "HCCL function error: ",
        "Exception ignored in",
        "Net : ",
    ]
    texts = {f"{piece!r} in one line": piece * (size // len(piece)) for piece in pieces}
    texts |= {f"{piece!r} line by line": f"{piece}\n" * (size // (len(piece) + 1)) for piece in pieces}
    texts["failures"] = "".join(f"ERROR: rank {number} failed to connect to h{number}: timed out\n" for number in range(900))[:size]
    texts["texts that entries need"] = "\n".join(each for error in ERRORS for each in error.needed)[:size]
    texts["frames"] = f"{FRAMES}E: x\n" * (size // len(FRAMES))
    texts["chained frames"] = f"{FRAMES}E: x\n\nDuring handling of the above exception, another exception occurred:\n" * 256
    for mark in ("[rank0] | " * 7 + "[rank0] x", "[0]" * 26 + "x", "a-b: " * 15 + "x"):
        texts[f"marks {mark[:8]}"] = f"{mark[:79]}Traceback (most recent call last):\n" * (size // 114)
    texts["ranks"] = "".join(f"[rank{number}]: \n" for number in range(3000))
    texts["every text that an entry needs"] = " ".join(each for error in ERRORS for each in error.needed)[-size:]
    texts["every entry"] = "\n".join(SAMPLES.values()) * 4
    texts["every entry in one line"] = " ".join(SAMPLES.values()) * 4
    for name in ("ascend-ei0002-broadcast", "nccl-ib-completion", "python-name-error"):
        texts[name] = EXCERPTS[name].text * (size // len(EXCERPTS[name].text))
    return texts


def looked_for() -> None:
    """The least that it takes to know which entries may match: each text that one needs is looked for once."""
    for text in NEEDED:
        USUAL.find(text)


def seconds(do: Callable[[], object]) -> float:
    started = time.process_time()
    do()
    return time.process_time() - started


NEEDED = sorted({text for error in ERRORS for text in error.needed})
USUAL = "\n".join(excerpt.text for excerpt in EXCERPTS.values())[:32768]


@pytest.mark.one_python
@helpers.for_each(hostile_texts())
def test_hostile_text_takes_no_time(text: str) -> None:
    """It is measured at 6 times the least, for the worst of them; a pattern that backtracks takes a hundred times and more."""
    find(text)
    pairs = ((seconds(looked_for), seconds(lambda: find(text))) for _ in range(8))
    least = most = float("inf")
    for bare, whole in pairs:
        least, most = min(least, bare), min(most, whole)
        if most < MOST_OF_LEAST * least:
            return
    pytest.fail(f"{most / least:.1f} times the least, {1000 * least:.1f} ms")


@given(st.text())
def test_any_text(text: str) -> None:
    finding = find(text)
    assert finding is None or finding.error in ERRORS


@given(st.binary())
def test_any_bytes(data: bytes) -> None:
    find(data.decode(errors="replace"))


PIECES = st.sampled_from(
    [*SAMPLES.values(), FRAMES, "\n", "\r\n", "[rank1]: ", "[rank 2] ", "\x1b[31m", "During handling of the above exception, another", " "]
)


@given(st.lists(PIECES | st.text(max_size=5), max_size=20).map("".join))
def test_any_mixture_of_known_lines(text: str) -> None:
    finding = find(text)
    shown = re.sub(r"\x1b\[[0-?]*[ -/]*[@-~]", "", text)
    assert finding is None or " ".join(finding.line.split()) in " ".join(shown.split())  # with more of its message, where that goes on


# What find chooses


def test_nothing_known() -> None:
    assert find("") is None
    assert find("epoch 1, loss 0.3\nsaved\n") is None


OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
LOST = "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:10895"
UNCAUGHT, GLOO_LOST = "python-uncaught-exception", "gloo-peer-connection-lost"


def test_causes_win_over_consequences_wherever_they_stand() -> None:
    assert name_of(f"{LOST}\n{OOM}\n") == name_of(f"{OOM}\n{LOST}\n") == "cuda-out-of-memory"


def test_earliest_cause_wins() -> None:
    full = "OSError: [Errno 28] No space left on device"
    assert name_of(f"{full}\n{OOM}\n") == "no-space-left"
    assert name_of(f"{OOM}\n{full}\n") == "cuda-out-of-memory"


def test_an_exception_may_be_the_last_of_a_text_that_is_cut() -> None:
    lost = "mpirun has exited due to process rank 3 with PID 0 on node worker-1 exiting improperly. There are three reasons:"
    assert find(f"{lost}{FRAMES}EI0003: 2024-05-21 In [HcclAllReduce], value [255] for parameter [op] is invalid.")


def test_a_full_disk_in_the_words_of_numpy() -> None:
    assert name_of(f"{FRAMES}OSError: 4000000 requested and 1048544 written\n") == "no-space-left"


def test_what_a_process_says_on_its_way_out_explains_only_what_nothing_else_does() -> None:
    aftermath = "terminate called without an active exception\n"
    assert name_of(aftermath) == "torch-process-group-left"
    assert name_of(FRAMES + LOST + "\n" + aftermath) == "gloo-peer-connection-lost"
    assert name_of(f"{FRAMES}my.package.Trouble: no\n{aftermath}") == UNCAUGHT


def test_a_launcher_that_ends_its_ranks_says_less_than_what_it_says_of_the_first() -> None:
    ends = "W1122 08:18:54.1 5314 torch/distributed/elastic/multiprocessing/api.py:1010] Sending process 33051 closing signal SIGTERM\n"
    failed = "E1122 08:18:54.2 5314 torch/distributed/elastic/multiprocessing/api.py:984] failed (exitcode: 3) local_rank: 1 (pid: 7)\n"
    assert name_of(ends) == "torchrun-ends-ranks"
    assert name_of(ends + failed) == "torchrun-child-failed"
    assert name_of(f"{ends}{FRAMES}{LOST}\n") == "gloo-peer-connection-lost"


S3 = """\
Traceback (most recent call last):
  File "urllib3/connection.py", line 213, in _new_conn
    raise NewConnectionError(
urllib3.exceptions.NewConnectionError: AWSHTTPConnection(host='127.0.0.1', port=9): Failed to establish a new connection

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "botocore/httpsession.py", line 508, in send
    raise EndpointConnectionError(endpoint_url=request.url, error=e)
botocore.exceptions.EndpointConnectionError: Could not connect to the endpoint URL: "http://127.0.0.1:9/datasets/train.tar"
"""
RPC = """\
Traceback (most recent call last):
  File "grpc/_channel.py", line 999, in _end_unary_response_blocking
    raise _InactiveRpcError(state)  # pytype: disable=not-instantiable
grpc._channel._InactiveRpcError: <_InactiveRpcError of RPC that terminated with:
\tstatus = StatusCode.UNAVAILABLE
\tdetails = "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:9: Connection refused"
\tdebug_error_string = "UNAVAILABLE:failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:9: Connection refused"
>
"""
H5 = """\
Traceback (most recent call last):
  File "h5py/_proxy.pyx", line 121, in h5py._proxy.dset_rw
OSError: [Errno 28] Can't synchronously write data (file write failed: time = Sat Nov 28 12:56:59 2026
, filename = '/mnt/ck/feat.h5', file descriptor = 9, errno = 28, error message = 'No space left on device', buf = 0x7f91445fc810)
"""


@pytest.mark.parametrize(
    ("said", "name", "line"),
    [
        (S3, "object-store-unreachable", 'Could not connect to the endpoint URL: "http://127.0.0.1:9/datasets/train.tar"'),
        (RPC, "grpc-call-failed", "terminated with:"),
        (H5, "no-space-left", "OSError: [Errno 28] Can't synchronously write data (file write failed: time = Sat Nov 28 12:56:59 2026"),
    ],
)
def test_of_what_is_outside_the_job_the_programs_own_exception_is_told(said: str, name: str, line: str) -> None:
    """And not what a library below it says, or one that others use for their peers."""
    found = find(f"step 5\n{said}")
    assert found
    assert found.error.name == name
    assert line in found.line


def test_line_belongs_to_its_most_specific_entry() -> None:
    assert name_of(FRAMES + LOST) == "gloo-peer-connection-lost"


@pytest.mark.parametrize(
    "prefix",
    [
        "[rank3]: ", "[rank3]:", "[rank 9] ", "[default3]:", "[1,3]<stderr>:", "3: ", "worker-1: ", "10.0.0.3: ", "(RayWorker pid=123) ",
        "[trainer0|0]:", "worker-1  | ", "2025-01-02 03:04:05,678 ", "2025-01-02T03:04:05.678901Z ", "[2025-01-02 03:04:05] ",
        "Jan  2 03:04:05 ", "[rank3]: 2025-01-02 03:04:05 ", "2025-01-02 03:04:05 [rank 3] ", "ERROR 01-02 03:04:05 [worker.py:522] ",
        "\x1b[36m(RayWorker pid=1)\x1b[0m ", "\x1b[31m", "",
    ],
)  # fmt: skip
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_prefixes_colours_and_line_ends_do_not_hide(prefix: str, end: str) -> None:
    lines = [*FRAMES.splitlines(), "ModuleNotFoundError: No module named 'apex'"]
    assert name_of("".join(f"{prefix}{line}{end}" for line in lines)) == "python-module-not-found"
    lines[-1] = "my.package.Trouble: no"
    assert name_of("".join(f"{prefix}{line}{end}" for line in lines)) == UNCAUGHT


def test_progress_bar_does_not_hide() -> None:
    assert name_of(f"\rEpoch 1:  10%|#\rEpoch 1:  20%|##{OOM}") == "cuda-out-of-memory"


HARMLESS = """
NCCL INFO NET/Plugin : Plugin load (libnccl-net.so) returned 2 : libnccl-net.so: cannot open shared object file: No such file or directory
W dso_loader.cc:64] Could not load dynamic library 'libcudart.so.11.0'; dlerror: libcudart.so.11.0: cannot open shared object file
UserWarning: Failed to load image Python extension: /lib/torchvision/image.so: undefined symbol: _ZN3c106detail23torchInternalAssertFail
UserWarning: CUDA initialization: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU
failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected
FileNotFoundError: [Errno 2] No such file or directory: 'cache'
ModuleNotFoundError: No module named 'apex'
[W socket.cpp:601] [c10d] The IPv6 network addresses of (worker-0, 29500) cannot be retrieved (gai error: -2 - Name or service not known).
drvRet=0, device 0 is ready
ldconfig: /usr/local/lib: not found
Sending process 33051 closing signal SIGTERM
"""


@pytest.mark.parametrize("line", HARMLESS.strip().splitlines())
def test_what_programs_survive_is_no_cause(line: str) -> None:
    finding = find(f"{line}\n{FRAMES}{LOST}\n")
    assert finding
    assert finding.error.kind == CONSEQUENCE
    assert name_of(f"{line}\n{FRAMES}KeyError: 'loss'\n") == UNCAUGHT


def test_handled_exception_does_not_count() -> None:
    handled = f"{FRAMES}FileNotFoundError: [Errno 2] No such file or directory: 'cache'\nno cache: go on\n"
    assert name_of(f"{handled}{FRAMES}KeyError: 'loss'\n") == UNCAUGHT
    assert name_of(f"{handled}{FRAMES}{LOST}\n") == "gloo-peer-connection-lost"
    finding = find(f"{FRAMES}ValueError: first\ngo on\n{FRAMES}ValueError: second\n")
    assert finding
    assert finding.line == "ValueError: second"


WORK_AFTER = ["step 12: loss 0.31", "{'loss': '3.06', 'epoch': '1'}", "checkpoint saved to /ckpt/12.pt", "node-1 is up", "handled: E()"]
NO_WORK_AFTER = [
    "wandb: Run summary:\nwandb:   loss 0.31\nwandb: Synced 5 files", "Epoch 3:  45%|####5     | 45/100 [00:10<00:12, 4.5it/s, loss=0.3]",
    "emergency checkpoint saved", "training is not completed", "retrying in 5 s", "",
    "step 12: loss 0.31\nsrun: error: node-1: task 1: Exited with exit code 3",
]  # fmt: skip


@pytest.mark.parametrize("error", [OOM, "curl: (7) Failed to connect to h0 port 80", f"{FRAMES}{LOST}", "cannot open it; retry 1 of 3"])
def test_a_failure_after_which_the_program_went_on_explains_nothing(error: str) -> None:
    assert [name_of(f"{error}\n{after}\n") for after in WORK_AFTER] == [None] * len(WORK_AFTER)


@pytest.mark.parametrize("after", NO_WORK_AFTER)
def test_what_is_said_on_the_way_out_is_no_work(after: str) -> None:
    assert name_of(f"{FRAMES}{OOM}\n{after}\n") == "cuda-out-of-memory"


def test_lines_that_go_on_counting_show_work_whatever_they_count() -> None:
    """Those of the program's own, and not those in which a launcher counts its ranks."""
    assert name_of(f"[1/3] objective 0.4\n[2/3] objective 0.3\n{FRAMES}{OOM}\n[3/3] objective 0.3\n") is None
    assert name_of(f"{FRAMES}{OOM}\nmemory of pool 1: full\nmemory of pool 2: full\n") == "cuda-out-of-memory"  # a list of its own
    for after in ("[1/3] objective 0.4", "rank 1: h1\nrank 2: h2", "#1 0x7f in a\n#2 0x8f in a"):
        assert name_of(f"[1/3] objective 0.4\n{FRAMES}{OOM}\n{after}\n") == "cuda-out-of-memory"


@pytest.mark.parametrize(
    "step",
    [
        "step %d loss 0.5", "Epoch 3 step %d loss 0.5", "{'loss': 0.5, 'epoch': 0.%d}", "2026-11-25 14:00:00 INFO step %d",
        "rank 1 step %d", "Epoch: [3]  [ %d/1000]  loss: 0.5", "epoch=3 iter=%d", "[rank1] Epoch 3 | Batch %d | loss 0.5",
        " [2026-11-25 10:00:08] iteration       %d/  500000 | consumed samples: 128 | lm loss: 2.3E+00 | number of nan iterations:   0 |",
        "2026-11-25 10:00:08 | INFO | train_inner | epoch 003:  %d / 5000 loss=0.5", " %d%%|##3       | %d/100 [00:01<00:09,  9.9it/s]",
        "Epoch 3:  %d%%|##3       | %d/100 [00:01<00:09,  9.9it/s, loss=0.5]",
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    ("end", "line"),
    [
        (f"{FRAMES}ValueError: loss is nan\n", "ValueError: loss is nan"),
        ("FATAL: lr is nan\n", "FATAL: lr is nan"),
        ("could not load the data\n", "could not load the data"),
    ],
)
def test_after_an_exception_that_was_caught_the_end_says_why(step: str, end: str, line: str) -> None:
    first, second, *steps = [f"{step.replace('%d', str(number)).replace('%%', '%')}\n" for number in range(7, 37)]
    begin = first + second
    glued = begin.rstrip() if "%%|" in step else begin  # a bar has no end of its line
    for before in (f"{begin}ERROR:root:skipped\n", glued):
        found = find(f"{before}{FRAMES}{OOM}\n{''.join(steps)}{end}")
        assert found
        assert found.line == line


@pytest.mark.parametrize(
    "told",
    [
        f"WARNING:root:skipping: {OOM}", "no summary written: [Errno 28] No space left on device", "[Errno 24] Too many open files: 'a'",
        "no evaluation: RuntimeError: DataLoader worker (pid 123) is killed by signal: Killed.", "Segmentation fault in child 7, restarted",
        "OSError: [Errno 5] Input/output error: '/mnt/nfs/a' - retry 1",
    ],
)  # fmt: skip
def test_what_a_program_has_only_told_of_long_before_is_not_why(told: str) -> None:
    steps = [f"step {number} loss 0.5\n" for number in range(30)]
    begin, more = "".join(steps[:5]), "".join(steps[5:])
    assert find(f"{begin}{told}\n")
    for end, name in ((f"{FRAMES}ValueError: loss is odd\n", UNCAUGHT), (f"{FRAMES}{LOST}\n", "gloo-peer-connection-lost")):
        assert name_of(f"{begin}{told}\n{more}{end}") == name


@pytest.mark.parametrize(
    ("code", "name"),
    [("2(cudaErrorMemoryAllocation)", "cuda-out-of-memory"), ("700(cudaErrorIllegalAddress)", "cuda-illegal-memory-access")],
)
def test_errors_of_cuda_as_c_programs_tell_them(code: str, name: str) -> None:
    """As the macros of NVIDIA's samples do."""
    assert name_of(f'CUDA error at train.cu:5 code={code} "cudaDeviceSynchronize()"\n') == name


def test_a_fault_of_a_machine_may_show_long_before_a_rank_fails_of_it() -> None:
    steps = "".join(f"step {number} loss 0.5\n" for number in range(30))
    xid = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."
    assert name_of(f"{steps}{xid}\n{steps.replace('step ', 'step 1')}{FRAMES}{LOST}\n") == "cuda-xid"


# torch.compile's, whose message has frames of the program, and of the compiler; and TorchScript's.
OF_COMPILER = f"""\
{FRAMES}torch._dynamo.exc.Unsupported: Data-dependent branching
  Explanation: Detected data-dependent branching (e.g. `if my_tensor.sum() > 0:`).

      The branch condition involves a tensor computed as follows:
        # File "/work/train.py", line 4, in f, code: if x.sum() > 0: return x
        gt = gt(sum_1, 0)

  Hint: Use `torch.cond` to express dynamic control flow.

  Developer debug context: attempted to jump with TensorVariable()

 For more details about this graph break, please visit: https://meta-pytorch.github.io/compile-graph-break-site/gb/gb0170.html

from user code:
   File "/work/train.py", line 4, in f
    if x.sum() > 0: return x
       ^^^^^^^^^^^^^^^^^^^^^

Set TORCHDYNAMO_VERBOSE=1 for the internal stack trace (please do this especially if you're reporting a bug to PyTorch).

"""
OF_TORCHSCRIPT = f"""\
{FRAMES}RuntimeError: The following operation failed in the TorchScript interpreter.
Traceback of TorchScript (most recent call last):
  File "/work/train.py", line 4, in g
@torch.jit.script
def g(a, b):
    return a @ b
           ~~~~~ <--- HERE
RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)

"""
# RichHandler's, which puts a panel below the message, and both to the right of time and level.
OF_RICH = """\
[11/25/26 19:16:48] INFO     step 3 loss 0.250                           train.py:5
                    ERROR    Training crashed                            train.py:9
                             ╭─── Traceback (most recent call last) ───╮
                             │ /work/train.py:7 in <module>            │
                             │                                         │
                             │ ❱  7 │   raise ValueError("no loss")    │
                             ╰─────────────────────────────────────────╯
                             ValueError: no loss
"""
# rich.traceback's, which shows the program's lines around a frame, and wraps the exception.
BY_RICH = """\
╭───────────────────── Traceback (most recent call last) ──────────────────────╮
│ /work/train.py:11 in step                                                    │
│                                                                              │
│   10 │   try:                                                                │
│ ❱ 11 │   │   return load(path)                                               │
│   12 │   except RuntimeError as e:                                           │
│   13 │   │   if "CUDA out of memory" in str(e):                              │
│                                                                              │
│ ╭──────────────── locals ─────────────────╮                                  │
│ │ why = 'No space left on device'         │                                  │
│ ╰─────────────────────────────────────────╯                                  │
╰──────────────────────────────────────────────────────────────────────────────╯
FileNotFoundError: [Errno 2] No such file or directory:\x20
'/data/train/shards/000123.tar'
"""
# The same, where what goes on below looks like words of the program, with a line of the program behind it.
WRAPPED_BY_RICH = """\
step 3 loss 0.25
╭───────────────────── Traceback (most recent call last) ──────────────────────╮
│ /work/train.py:3 in <module>                                                 │
│                                                                              │
│ ❱ 3 raise ValueError(f"shard {shard} in {folder} was not readable at all, ...│
╰──────────────────────────────────────────────────────────────────────────────╯
ValueError: shard 4711 in the folder /data/one of the third epoch was not\x20
readable at all, and neither was the other
the cache of 12 shards is kept
"""
IMPL = "tensorflow.python.framework.errors_impl."
# TensorFlow 2.21's, of a function; of a session, with the frames that made the node behind it; and of a generator in Python.
OF_GRAPH = """\
Traceback (most recent call last):
  File "/work/train.py", line 22, in <module>
    step(batch)
  File "/lib/python3.11/site-packages/tensorflow/python/util/traceback_utils.py", line 167, in error_handler
    raise e.with_traceback(filtered_tb) from None
  File "/lib/python3.11/site-packages/tensorflow/python/eager/execute.py", line 59, in quick_execute
    except TypeError as e:
tensorflow.python.framework.errors_impl.NotFoundError: Graph execution error:

Detected at node ReadFile defined at (most recent call last):
  File "/work/train.py", line 22, in <module>

  File "/work/train.py", line 11, in step

/data/train-00003.tfrecord; No such file or directory
\t [[{{node ReadFile}}]] [Op:__inference_step_10]
"""
OF_SESSION = """\
Traceback (most recent call last):
  File "/work/train.py", line 17, in <module>
    session.run(op)
  File "/lib/python3.11/site-packages/tensorflow/python/client/session.py", line 1426, in _do_call
    raise type(e)(node_def, op, message)  # pylint: disable=no-value-for-parameter
    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
tensorflow.python.framework.errors_impl.InvalidArgumentError: Graph execution error:

Detected at node 'CheckNumerics' defined at (most recent call last):
    File "/work/train.py", line 9, in <module>
Node: 'CheckNumerics'
loss is bad : Tensor had NaN values
\t [[{{node CheckNumerics}}]]

Original stack trace for 'CheckNumerics':
  File "/work/train.py", line 9, in <module>
  File "/lib/python3.11/site-packages/tensorflow/python/framework/ops.py", line 1221, in from_node_def

"""
OF_GENERATOR = """\
Traceback (most recent call last):
  File "/work/train.py", line 52, in <module>
    model.fit(dataset)
  File "/lib/python3.11/site-packages/tensorflow/python/eager/execute.py", line 53, in quick_execute
    tensors = pywrap_tfe.TFE_Py_Execute(ctx._handle, device_name, op_name,
              ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
tensorflow.python.framework.errors_impl.UnknownError: Graph execution error:

Detected at node PyFunc defined at (most recent call last):
<stack traces unavailable>
KeyError: 'image_007'
Traceback (most recent call last):

  File "/lib/python3.11/site-packages/tensorflow/python/ops/script_ops.py", line 269, in __call__
    ret = func(*args)
          ^^^^^^^^^^^

  File "/work/train.py", line 50, in images
    raise KeyError('image_007')

KeyError: 'image_007'


\t [[{{node PyFunc}}]]
\t [[IteratorGetNext]] [Op:__inference_multi_step_on_iterator_906]
"""
RESTART = "The error could be from a previous operation. Restart your program to reset."
MISMATCH = (
    "Shape mismatch in the collective instance 100. Op at device /job:worker/replica:0/task:1/device:CPU:0 expected shape [3] but another "
    "member in the group expected shape [2]. This is likely due to different input shapes at different members of the collective op."
)
OF_SHAPES = f"""\
Traceback (most recent call last):
  File "/work/train.py", line 20, in <module>
    step()
  File "/lib/python3.11/site-packages/tensorflow/python/util/traceback_utils.py", line 167, in error_handler
    raise e.with_traceback(filtered_tb) from None
tensorflow.python.framework.errors_impl.InvalidArgumentError: Graph execution error:

Detected at node CollectiveReduceV2 defined at (most recent call last):
  File "/work/train.py", line 20, in <module>

  File "/work/train.py", line 13, in step

Collective ops is aborted by: {MISMATCH}
Additional GRPC error information from remote target /job:worker/replica:0/task:0 while calling /tensorflow.WorkerService/CompleteInstance:
:UNKNOWN:Error received from peer  {{grpc_status:3, grpc_message:"{MISMATCH}"}}
{RESTART}
\t [[{{{{node CollectiveReduceV2}}}}]] [Op:__inference_step_31]
"""
LOGGED_OF_SHAPES = f"""\
E0000 00:00:1795729651.415871   31277 base_collective_executor.cc:252] BaseCollectiveExecutor::StartAbort INVALID_ARGUMENT: {MISMATCH}
E0000 00:00:1795729651.415899   31277 ring_alg.cc:290] Aborting RingReduce with INVALID_ARGUMENT: Collective ops is aborted by: {MISMATCH}
"""
UNHEALTHY = """\
Error reported from /job:worker/task:1: The following tasks are unhealthy (stopped sending heartbeats):
/job:worker/replica:0/task:1
The tasks have crashed. Check the task logs for an earlier error, or scheduler events (e.g. preemption, eviction) to debug further."""
OF_DEAD_WORKER = f"""\
{OF_SHAPES.partition("tensorflow.python.framework.errors_impl")[0]}\
tensorflow.python.framework.errors_impl.UnavailableError: Graph execution error:

Detected at node CollectiveReduceV2 defined at (most recent call last):
  File "/work/train.py", line 20, in <module>

  File "/work/train.py", line 13, in step

Collective ops is aborted by: {UNHEALTHY}
{RESTART}
\t [[{{{{node CollectiveReduceV2}}}}]] [Op:__inference_step_31]
"""
BY_KERAS = """\
Traceback (most recent call last):
  File "/work/train.py", line 60, in <module>
    model(images)
  File "/lib/python3.11/site-packages/keras/src/layers/input_spec.py", line 239, in assert_input_compatibility
    raise ValueError(
ValueError: Exception encountered when calling Sequential.call().

\x1b[1mInput 0 with name 'None' of layer 'dense_5' is too wide\x1b[0m

Arguments received by Sequential.call():
  • inputs=tf.Tensor(shape=(None, 5), dtype=float32)
  • training=True
"""
# Typer's, with rich and without.
USAGE = "Usage: train.py [OPTIONS]\nTry 'train.py --help' for help.\n"
TOLD_BY_TYPER = f"{USAGE}\nError: Missing option '--data'.\n"
# loguru's, which shows values below a line.
BY_LOGURU = """\
Traceback (most recent call last):
> File "/work/train.py", line 9, in <module>
    step(text)
    │    └ 'CUDA out of memory'
    └ <function step at 0x7f3c>
  File "/work/train.py", line 5, in step
    raise ValueError("label 1003 out of range")
ValueError: label 1003 out of range
"""
# Its core's, which tells what it does on standard error where there is no HOME for its log.
OF_WANDB = f"""\
step 1 loss 0.5
{FRAMES}ValueError: no loss
2026/11/25 18:49:51 INFO handleInformTeardown: server teardown initiated id=1(@)
2026/11/25 18:49:51 INFO connection: closed successfully id=1(@)
2026/11/25 18:49:51 INFO server: is shutting down
2026/11/25 18:49:51 INFO server: listener closed addr=/tmp/wandb-1-2-3/socket
2026/11/25 18:49:51 INFO processOutgoingData: finished id=1(@)
2026/11/25 18:49:51 INFO server: all connections closed
"""


@helpers.for_each(
    [
        (OF_COMPILER, UNCAUGHT, "torch._dynamo.exc.Unsupported: Data-dependent branching"),
        (OF_TORCHSCRIPT, UNCAUGHT, "RuntimeError: The following operation failed in the TorchScript interpreter."),
        (OF_RICH, UNCAUGHT, "ValueError: no loss"),
        (BY_RICH, "python-file-not-found", "FileNotFoundError: [Errno 2] No such file or directory:"),
        (WRAPPED_BY_RICH, UNCAUGHT, "ValueError: shard 4711 in the folder"),
        (OF_GRAPH, UNCAUGHT, f"{IMPL}NotFoundError: Graph execution error:"),
        (OF_SESSION, UNCAUGHT, f"{IMPL}InvalidArgumentError: Graph execution error:"),
        (OF_GENERATOR, UNCAUGHT, "KeyError: 'image_007'"),
        (f"{LOGGED_OF_SHAPES}{OF_SHAPES}", "tensorflow-collectives-differ", "Collective ops is aborted by: Shape mismatch"),
        (OF_DEAD_WORKER, "tensorflow-peer-lost", f"{IMPL}UnavailableError: Graph execution error:"),
        (BY_KERAS, UNCAUGHT, "ValueError: Exception encountered when calling Sequential.call()."),
        (TOLD_BY_TYPER, "python-wrong-arguments", "Error: Missing option '--data'."),
        (BY_LOGURU, UNCAUGHT, "ValueError: label 1003 out of range"),
        (OF_RICH.replace("\n", " " * 12 + "\n"), UNCAUGHT, "ValueError: no loss"),  # as it fills lines up
        (OF_WANDB, UNCAUGHT, "ValueError: no loss"),
    ]
)
def test_the_last_lines_of_a_tool_are_not_the_programs(text: str, name: str, line: str) -> None:
    found = find(text)
    assert found
    assert found.error.name == name
    assert found.line.startswith(line)


# rich.traceback's, 48 columns wide, of an exception whose message has lines of its own, of which it wraps the second.
PANEL_OF_RICH = f"╭{' Traceback (most recent call last) ':─^46}╮\n│ {'/work/train.py:3 in <module>':<44} │\n╰{'─' * 46}╯\n"


def test_what_stands_below_a_panel_of_richs_handler_of_logging_is_none_of_its_message() -> None:
    """It fills each line up with blanks."""
    panel = "".join(f"{'':>29}{line}\n" for line in PANEL_OF_RICH.splitlines())
    logged = f"[11/27/26 08:22:22] ERROR    metric failed, ignored\n{panel}{'':>29}{'ZeroDivisionError: division by zero':<51}\n"
    below = "[11/27/26 08:22:23] INFO     epoch 1\n"
    assert find(f"{logged}{below}{PANEL_OF_RICH}RuntimeError: boom\n").line == "RuntimeError: boom"  # type: ignore[union-attr]


@pytest.mark.parametrize("frames", [FRAMES, PANEL_OF_RICH])
@pytest.mark.parametrize(
    "line",
    [
        "step 4 loss 0.25",
        "Epoch 1:  41%|████      | 41/100 [00:12<00:18,  3.2it/s, loss=0.4]",
        "/lib/python3.11/multiprocessing/resource_tracker.py:254: UserWarning: resource_tracker: 1 leaked semaphore",
        "2026-11-26 10:00:00,123 INFO train: took 3 s",
        "[rank1]: ValueError: no shard",
        "W1126 12:00:00.123000 4711 torch/distributed/elastic/multiprocessing/api.py:9] Sending process 12 closing signal SIGTERM",
        "srun: error: n1: task 3: Exited with exit code 1",
        "mpirun detected that one or more processes exited with non-zero status",
        "wandb: Run history:",
        "Exception ignored in: <function f at 0x1>",
    ],
)
def test_what_stands_behind_an_exception_is_none_of_its_message(frames: str, line: str) -> None:
    named = "ValueError: cannot load the shard:"
    lines = read_output(f"step 3 loss 0.25\n{frames}{named}\n{line}\n").lines
    assert with_message(lines, next(each.number for each in lines if each.text == named), named) == named


def test_an_exception_after_which_the_program_counted_on_did_not_end_it() -> None:
    """A step or two another rank may have taken, in an output that all share."""
    begin, *steps = [f"step {number} loss 0.5\n" for number in range(9)]
    later = f"{FRAMES}{LOST}\n"
    assert name_of(f"{begin}{FRAMES}{OOM}\n{''.join(steps)}{later}") == "gloo-peer-connection-lost"
    two_steps = find(f"{begin}{FRAMES}{OOM}\n{''.join(steps[:2])}{later}", shared=True)
    assert two_steps
    assert two_steps.error.name == "cuda-out-of-memory"
    aborted = "[rank0]:[E1124 ProcessGroupNCCL.cpp:1026] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2)\n"
    assert name_of(f"{begin}{FRAMES}{OOM}\n{''.join(steps)}{aborted}") == "nccl-collective-timeout"
    peers = "".join(f"step {number} loss 0.{rank}\n" for number in (1, 2) for rank in range(8))
    tagged = "".join(f"[rank0]: {line}\n" for line in f"{begin}{FRAMES}{OOM}".splitlines())
    for of_peers in (peers.replace("step", "[rank1]: step"), "".join(f"[rank1]: {step}" for step in steps)):
        assert name_of(f"{tagged}{of_peers}{later}") == "cuda-out-of-memory"


LAID_OUT = st.lists(
    st.sampled_from(
        (
            "", " ", "Traceback (most recent call last):", '  File "a.py", line 3, in main', "ValueError: no image", "step 3 loss 0.5",
            "╭─── Traceback (most recent call last) ───╮", "│ a.py:3 in main                          │",
            "╭─ Error ────────╮", "│ Missing 'a'.   │",
            "╰─────────────────────────────────────────╯", "ValueError: a word that is as long as it takes to be wrapped by rich, and",
            "tensorflow.python.framework.errors_impl.NotFoundError: Graph execution error:", "Node: 'ReadFile'",
            "\t [[{{node ReadFile}}]]", "Original stack trace for 'ReadFile':", "  (0) INVALID_ARGUMENT: indices",
            "ValueError: Exception encountered when calling Dense.call().", "mpirun has exited due to process rank 3 with PID 0 on",
            "node vm exiting improperly. There are three reasons this could occur:", "Arguments received by Dense.call():", "", " ",
        )
    ),
    max_size=60,
)  # fmt: skip


@settings(max_examples=300)
@given(LAID_OUT, st.sampled_from(("", "\n" * 50)))
def test_what_libraries_lay_out_is_read_however_it_is_cut(lines: list[str], behind: str) -> None:
    find("\n".join(lines) + behind)


@pytest.mark.parametrize("behind", ["", "\n", "\n" * 60, "\n\n"])
def test_the_first_line_of_an_exception_of_keras_may_stand_alone(behind: str) -> None:
    first = "ValueError: Exception encountered when calling Dense.call()."
    found = find(f"{first}{behind}")
    assert found
    assert found.line == first


@pytest.mark.parametrize(
    "line",
    [
        "Floating point exceptions are trapped: divide, invalid", "Floating point exception handling: enabled",
        "Bus errors on this host are counted by rasdaemon", "Segmentation faults of loaders are survived", "Caught signal 15",
    ],
)  # fmt: skip
def test_what_speaks_of_crashes_is_none(line: str) -> None:
    found = find(f"{line}\n{FRAMES}ValueError: no image\n")
    assert found
    assert found.line == "ValueError: no image"


def test_a_step_of_another_process_does_not_hide_why() -> None:
    """It is taken before this exception holds its rank up."""
    one, *more = [f"step {number} loss 0.5\n" for number in range(4)]
    text = f"{one}{FRAMES}{OOM}\n{more[0]}"
    assert find(text) is None
    hooked = "".join(f"[rank3]: {line}\n" for line in f"{FRAMES}{OOM}".splitlines())
    for told, shared in (
        (text, True),
        (f"{one}{hooked}{more[0]}", False),
    ):
        found = find(told, shared=shared)
        assert found
        assert found.error.name == "cuda-out-of-memory"
        assert find(told + "".join(more), shared=shared) is None


def test_the_first_exception_of_several_processes_counts_where_the_others_lost_it() -> None:
    """As programs that log what has ended them write it, all into one output."""
    logged = "2026-11-26 17:54:11,816 [ERROR] training failed\n"
    true, lost = f"{logged}{FRAMES}ValueError: no pad token\n", f"{logged}{FRAMES}{LOST}\n"
    by_torchrun = (
        "E1126 17:54:12.1 7 torch/distributed/elastic/api.py:986] failed (exitcode: %d) local_rank: 1 (pid: 9) of binary: python\n"
    )
    by_spawn = f"{FRAMES}torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with %s\n"
    by_deepspeed = "h0: [2026-11-26 17:51:38,988] [ERROR] [launch.py:259:sigkill_handler] ['python', 'a.py'] exits with return code = %d\n"
    of_hosts = "".join(f"h{number}: {line}\n" for number, text in ((1, true), (0, lost), (1, lost)) for line in text.splitlines())
    at_work = "2026-11-26 17:54:10,101 INFO step 20/60 loss 0.3\n"
    for text, shared in (
        (true + lost, True),
        (f"{at_work}{FRAMES}ValueError: no pad token\n{FRAMES}{LOST}\n", True),
        (f"{true}step 3 loss 0.2\n{lost}{lost}", True),
        (true + lost + by_torchrun % 1, False),
        (true + lost + by_spawn % "exit code 1", False),
        (of_hosts + by_deepspeed % 1 + by_deepspeed % -15, False),
    ):
        found = find(text, shared=shared)
        assert found
        assert found.line.endswith("ValueError: no pad token"), text
    went_on = "".join(f"step {number} loss 0.2\n" for number in range(3, 9))
    for text, shared in (
        (true + lost, False),  # of one process, which had caught the first
        (f"step 2 loss 0.2\n{true}{went_on}{lost}", True),
        (lost + lost, True),
    ):
        found = find(text, shared=shared)
        assert found
        assert found.error.kind == CONSEQUENCE, text


def test_a_report_between_an_exception_and_the_steps_behind_it_hides_these_not() -> None:
    """As of a torchrun that a rank starts for an evaluation, and survives."""
    report = "W1126 19:57:37.1 383 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 387 closing signal SIGTERM\n"
    before, behind = ("".join(f"step {number}/400 loss 0.3\n" for number in steps) for steps in (range(12), range(12, 33)))
    hooked = "".join(f"[rank2]: {line}\n" for line in f"{FRAMES}KeyError: 'shard_77'".splitlines())
    found = find(f"{before}{FRAMES}ValueError: metrics file is empty\n{report}{behind}{hooked}")
    assert found
    assert found.line.endswith("KeyError: 'shard_77'")


MINDSPORE_ENDS = (
    "[INFO] DISTRIBUTED(254,7fc74dffb6c0,python):2026-11-26-08:20:10.030.912 "
    "[mindspore/ccsrc/cluster/rpc/core/communicator/tcp_client.cc:367] Start] Event base dispatch success!\n"
)


@pytest.mark.parametrize(
    "after",
    [
        "  lr: 0\n  step: 140\n",
        "\nFailed validating 'required' in schema:\n    {'type': 'object'}\n\nOn instance:\n    {'epochs': 3, 'lr': 0.001}\n",
        '{\n  "step": 140,\n  "opt": {\n    "lr": 0.1\n  }\n}\n',
        "\n  batch 3: nan\n  batch 5: nan\n  batch 9: nan\n",
        "  step 100: 3 of 4 shards\n  step 200: 2 of 4 shards\n  step 300: 3 of 4 shards\n",
        "    lr[0] = 0.1\n    lr[1] = 0.2\n    lr[2] = 0.3\n",
        "\nSet the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.\n",
    ],
)
@pytest.mark.parametrize("before", ["", "step 1 loss 0.5\nstep 2 loss 0.4\n"])
def test_what_belongs_to_an_exception_does_not_hide_it(before: str, after: str) -> None:
    found = find(f"{before}{FRAMES}ValueError: bad config:\n{after}")
    assert found
    assert found.line.startswith("ValueError: bad config:")


def test_a_double_free_is_known_by_each_of_glibcs_words() -> None:
    for said in ("free(): double free detected in tcache 2", "free(): invalid pointer", "double free or corruption (fasttop)"):
        assert name_of(f"step 1\n{said}\n[h1:00235] *** Process received signal ***\n") == "heap-corrupted"


SCRIPTS_END = ("finished with rc 7\n", "12:04:26 training finished, exit code 7\n", "EXIT_CODE=7\n", "== exit code: 1 ==\n")


@pytest.mark.parametrize("end", [MINDSPORE_ENDS, *SCRIPTS_END])
@pytest.mark.parametrize("error", ["ERROR:train:validation set is empty\n", f"{FRAMES}ValueError: bad sample\n"])
def test_what_libraries_and_scripts_say_at_the_end_does_not_hide_an_error_of_the_program(error: str, end: str) -> None:
    found = find(f"step 9 loss 0.5\n{error}{end}")
    assert found
    assert found.line == error.splitlines()[-1]


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("t.sh: line 1: syntax error near unexpected token `do'\nt.sh: line 1: `if [ 1 ]; do'", "script-syntax-error"),
        ("sh: 1: Syntax error: Unterminated quoted string", "script-syntax-error"),
        ("t.sh: line 9: unexpected EOF while looking for matching `\"'", "script-syntax-error"),
        ("awk: line 1: syntax error at or near }", "script-syntax-error"),
        ('/bin/sh: syntax error: unexpected "("', "script-syntax-error"),
        ('t.sh: line 3: 1 + : syntax error: operand expected (error token is "+ ")', "script-syntax-error"),
        ("eval: line 30: syntax error rate 0.12", None),
        ("deprecated: line 12: `foo' is replaced by 'bar'", None),
        ("make: *** [Makefile:3: all] Error 0", None),
        ("the query returned 12 results", None),
        ("OSError: [Errno 98] Address already in use", "port-in-use"),
        ("sh: 1: ./prepare.sh: Permission denied", "file-permission-denied"),
        ("bash: /data/out.log: Permission denied", "file-permission-denied"),
        ("touch: cannot touch '/data/x': Permission denied", "file-permission-denied"),
        ("tee: x.log: Permission denied", "file-permission-denied"),
        ("root@10.0.0.1: Permission denied (publickey).", "ssh-denied"),
        ("\ngzip: stdin: unexpected end of file\ntar: Skipping to next header\ntar: Child returned status 1", "archive-broken"),
        ("bzip2: a.xz is not a bzip2 file.", "archive-broken"),
        ("tar: Unexpected EOF in archive\nstep 1 loss 2\nstep 2 loss 2\nERROR: batch shape mismatch", "words-of-an-error"),
        ("conf.sh: line 2: syntax error near unexpected token `fi'\nstep 1 loss 2\nERROR:root:batch shape mismatch", "words-of-an-error"),
        ("tar: data.bin: Cannot open: Permission denied", "file-permission-denied"),
        ("ERROR: worker 3: exit 1", "words-of-a-peer"),
        ("sleep 1; exit 3\nmake: *** [Makefile:3: a] Error 3\nmake: *** Waiting for unfinished jobs....", "launcher-command-failed"),
        (f"t.sh: line 3: ./prepare.sh: Permission denied\nepoch 1 loss 0.3\n{FRAMES}ZeroDivisionError: 1 / 0", "python-uncaught-exception"),
        ("t.sh: line 3: ./prepare.sh: Permission denied\nstep 1 loss 0.3\nstep 2 loss 0.2\nsaved", None),
    ],
)
def test_what_shells_and_their_tools_say_is_of_no_host(said: str, name: str | None) -> None:
    assert name_of(f"{said}\n") == name


@pytest.mark.parametrize("error", ["ModuleNotFoundError: No module named 'foo'", "ImportError: numpy.core.multiarray failed to import"])
def test_a_module_without_which_the_program_went_on_explains_no_later_exception(error: str) -> None:
    went_on = "going on without\nepoch 1 loss 0.3\nepoch 2 loss 0.2\n"
    assert name_of(f"{FRAMES}{error}\n{went_on}{FRAMES}ZeroDivisionError: division by zero\n") == "python-uncaught-exception"


def test_an_error_that_comes_again_and_again_costs_no_more_each_time() -> None:
    """As one that a program tries to get over for hours. Four times as often, it took ten times as long."""

    def seconds(count: int) -> float:
        began = time.process_time()
        assert findings(f"  {OOM}\n" * count)
        return time.process_time() - began

    seconds(1000)
    assert seconds(48_000) < 7 * seconds(12_000)


def test_what_a_script_says_of_its_success_shows_that_an_error_was_survived() -> None:
    assert find(f"step 9 loss 0.5\n{FRAMES}ValueError: bad sample\ntraining finished, exit code 0\n") is None


def test_steps_behind_an_exception_are_no_figures_of_it() -> None:
    assert find(f"Train Epoch: 1 Loss: 2.3\n{FRAMES}ValueError: bad sample\nTrain Epoch: 1 Loss: 2.2\n") is None
    assert find(f"{FRAMES}ValueError: bad sample\n2026-11-26 09:59:36,501 INFO Train Epoch: 1 Loss: 2.2\n") is None
    assert find(f"{FRAMES}ValueError: bad sample\nstep: 1 loss: 0.5\n") is None
    assert find(f"{FRAMES}ValueError: bad sample\nTrain Epoch: 1 Loss: 2.3\nTrain Epoch: 1 Loss: 2.2\n") is None
    for steps in ("step: 1\nstep: 2\nstep: 3\n", "  step: 1\nstep 1 done\nstep: 1\nstep: 2\n"):
        assert find(f"{FRAMES}ValueError: bad sample\n{steps}") is None
        assert find(f"  step: 0\n{FRAMES}ValueError: bad sample\n  {steps}") is None


def test_a_process_that_the_program_had_started_says_why_that_failed() -> None:
    own = f"Process SpawnProcess-1:\n{FRAMES}ValueError: bad sample\n"
    after = f"{FRAMES}RuntimeError: worker 1 failed\n"
    found = find(own + after)
    assert found
    assert (found.error.name, found.line) == (UNCAUGHT, "ValueError: bad sample")
    assert (
        name_of(f"step 0 loss 0.5\n{own}{''.join(f'step {number} loss 0.5' + chr(10) for number in (1, 2, 3))}{after}") == "words-of-a-peer"
    )


def test_a_command_of_a_script_failed_only_if_nothing_came_after_it() -> None:
    for line in (
        "run.sh: line 3: module: command not found",
        "curl: (7) Failed to connect to h0 port 80",
        "run.sh: line 3: 135 Segmentation fault",
    ):
        assert name_of(f"{line}\n") is not None
        assert name_of(f"{line}\nworld size 1\n") is None
        assert name_of(f"{line}\nType 'run.sh --help' for usage.\n") is not None
    assert name_of(f"{FRAMES}my.Trouble: no\nworld size 1\n") == UNCAUGHT


def test_what_is_tried_again_counts_only_at_the_end() -> None:
    lost = "(raylet) A worker died or was killed while executing a task by an unexpected system error."
    assert name_of(f"{lost}\nThere are 2 retries remaining, so the task will be retried.\n") == "ray-node-lost"
    assert name_of(f"{lost}\nThere are 2 retries remaining, so the task will be retried.\n[0, 1, 2]\n") is None


def test_what_a_line_goes_on_with_is_no_failure() -> None:
    assert name_of("what to do\n            if any process returns a non-zero exit status\n") is None


def test_exception_of_another_rank_is_not_handled_by_this_one() -> None:
    def of_rank(rank: int, text: str) -> str:
        return "".join(f"[rank{rank}]: {line}\n" for line in text.splitlines())

    first = of_rank(0, f"{FRAMES}ValueError: bad sample")
    assert name_of(first + of_rank(1, FRAMES + LOST)) == UNCAUGHT
    assert name_of(of_rank(0, f"{FRAMES}{LOST}") + of_rank(1, FRAMES + LOST)) == "gloo-peer-connection-lost"


def test_what_an_exception_was_raised_from_counts() -> None:
    chained = "\nDuring handling of the above exception, another exception occurred:\n\n"
    direct = "\nThe above exception was the direct cause of the following exception:\n\n"
    for link in (chained, direct):
        text = f"{FRAMES}FileNotFoundError: [Errno 2] No such file or directory: 'x'\n{link}{FRAMES}RuntimeError: no data\n"
        assert name_of(text) == "python-file-not-found"
        text = f"{FRAMES}RuntimeError: NCCL error in: x.cpp:1, internal error\n{link}{FRAMES}AttributeError: 'NoneType'\n"
        assert name_of(text) == "nccl-call-failed"


LOST_WORKER = "RuntimeError: DataLoader worker (pid 7) exited unexpectedly with exit code 1. Details are lost due to multiprocessing."
SPAWNED = """Traceback (most recent call last):
  File "<string>", line 1, in <module>
  File "/usr/lib/python3.11/multiprocessing/spawn.py", line 122, in spawn_main
    exitcode = _main(fd, parent_sentinel)
FileNotFoundError: [Errno 2] No such file or directory: 'x.bin'
"""


@pytest.mark.parametrize(
    "after",
    [
        "concurrent.futures.process.BrokenProcessPool: A process in the process pool was terminated abruptly",
        LOST_WORKER,
        f"{LOST_WORKER}\n\nThe above exception was the direct cause of the following exception:\n\n{FRAMES}{LOST_WORKER}",
    ],
)
def test_what_a_process_failed_of_as_it_was_spawned(after: str) -> None:
    found = find(f"step 1\n{SPAWNED}{FRAMES}{after}\n")
    assert found
    assert found.line == "FileNotFoundError: [Errno 2] No such file or directory: 'x.bin'"


@pytest.mark.parametrize("mark", ["", "[rank1]: "])
def test_of_what_pytorch_raises_again_the_worker_s_own_words_count(mark: str) -> None:
    own = "FileNotFoundError: [Errno 2] No such file or directory: 'x.jpg'"
    text = f"{FRAMES}FileNotFoundError: Caught FileNotFoundError in DataLoader worker process 0.\nOriginal {FRAMES}{own}\n"
    found = find("".join(mark + line for line in text.splitlines(keepends=True)))
    assert found
    assert (found.error.name, found.line) == ("python-file-not-found", mark + own)


def test_tracebacks_of_launchers_and_those_that_python_ignores_are_not_the_last() -> None:
    own = f"{FRAMES}ValueError: bad sample\n"
    launcher = f"{FRAMES}torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n====\ntrain.py FAILED\n"
    ignored = f"Exception ignored in: <function Loader.__del__ at 0x7f>\n{FRAMES}AttributeError: 'Loader' object has no attribute 'x'\n"
    at_exit = f"Error in atexit._run_exitfuncs:\n{FRAMES}BrokenPipeError: [Errno 32] Broken pipe\n"  # Python 3.9
    for text in (own + launcher, own + ignored, own + ignored + launcher, own + at_exit + at_exit):
        finding = find(text)
        assert finding
        assert finding.line == "ValueError: bad sample"
    assert name_of(launcher) == "torchrun-child-failed"
    assert name_of(ignored) is None


NO_PROCESS = [
    "train.sh: fork: retry: Resource temporarily unavailable",
    "libgomp: Thread creation failed: Resource temporarily unavailable",
    "OpenBLAS blas_thread_init: pthread_create failed for thread 27 of 64: Resource temporarily unavailable",
    "  what():  Resource temporarily unavailable",
    "BlockingIOError: [Errno 11] Resource temporarily unavailable",
]
NO_ROOM_YET = [
    "OSError: Unable to open file (unable to lock file, errno = 11, error message = 'Resource temporarily unavailable')",
    (
        "[WARNING] DISTRIBUTED(9,7f,python):2026-11-22-13:14:28.5 [mindspore/ccsrc/cluster/rpc/tcp/connection.cc:79] SocketEventHandler] "
        "errcode: 11, errno: 11 Resource temporarily unavailable, remote peer: 192.0.2.1:8118"
    ),
]


@helpers.for_each([*NO_PROCESS, *NO_ROOM_YET])
def test_what_is_unavailable_is_a_process_where_it_says_so(line: str) -> None:
    """Sockets and locks say the same each time that they have to wait."""
    assert (name_of(f"{line}\n") == "too-many-processes") is (line in NO_PROCESS)


def test_what_the_message_goes_on_with_counts() -> None:
    text = f"{FRAMES}RuntimeError: call failed\n[ERROR] 2025-04-08 ERR01100 OPS call acl api failed.\nEI0006: Getting socket times out.\n"
    assert name_of(text) == "hccl-socket-timeout-ei0006"


def test_traceback_whose_beginning_is_cut_off_counts() -> None:
    assert name_of('l last):\n  File "train.py", line 3, in main\n    step()\nValueError: bad sample\n') == UNCAUGHT
    assert name_of('  File "train.py", line 3\n    def f(:\n          ^\nSyntaxError: invalid syntax\n') == "python-syntax-error"


def test_traceback_in_a_panel_counts() -> None:
    panel = "╭───── Traceback (most recent call last) ─────╮\n│ /workspace/train.py:3 in main │\n╰──────────────────╯\n"
    assert name_of(f"{panel}ValueError: bad sample\n") == UNCAUGHT
    assert name_of("╭── Summary ──╮\n│ loss 0.3 │\n╰───────────╯\nsaved\n") is None
    assert name_of(f"{FRAMES}FileNotFoundError: 'cache'\n{panel}ValueError: bad sample\n") == UNCAUGHT


def test_stack_of_a_fatal_error_is_no_traceback() -> None:
    text = 'Fatal Python error: Aborted\n\nThread 0x00007f (most recent call first):\n  File "a.py", line 324 in wait\nINFO: done\n'
    assert find(text) is None
    assert name_of(text.replace("INFO: done\n", "")) == "words-of-an-error"


def test_only_the_end_of_a_long_output_counts() -> None:
    assert find(f"{OOM}\n" + "step\n" * 20000) is None
    assert name_of("step\n" * 20000 + f"{OOM}\n") == "cuda-out-of-memory"


def test_very_long_line_is_cut_around_what_matched() -> None:
    finding = find("x" * 5000 + OOM + "y" * 5000)
    assert finding
    assert OOM in finding.line
    assert len(finding.line) == 500


# docs/known-errors.md


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    return places.module("docs/make_reference.py")


def test_page_is_fresh_and_has_every_entry(reference: ModuleType) -> None:
    page = helpers.ROOT / "docs/known-errors.md"
    text = page.read_text(encoding="utf-8")
    assert (page, text) in list(reference.pages(helpers.ROOT)), "docs/known-errors.md is stale: run docs/make_reference.py"
    assert re.findall(r"^\| `([a-z0-9-]+)` \|", text, re.MULTILINE) == [
        error.name for family in dict.fromkeys(error.family for error in ERRORS) for error in ERRORS if error.family == family
    ]


def test_the_line_is_what_was_raised_and_not_where() -> None:
    found = find(RAISED)
    assert found
    assert (found.error.name, found.line) == ("cuda-out-of-memory", "RuntimeError: CUDA out of memory. Tried to allocate 2 GiB")


def test_of_a_state_that_does_not_fit_the_first_parameter_is_told() -> None:
    error = "RuntimeError: Error(s) in loading state_dict for Linear:"
    weight = "size mismatch for weight: copying a param with shape torch.Size([3, 4]) from checkpoint"
    assert (
        line_of(f"{FRAMES}{error}\n\t{weight}\n\tsize mismatch for bias: copying a param with shape torch.Size([3]) from checkpoint\n")
        == f"{error} {weight}"
    )


def test_memory_that_jax_then_reserves_less_of_is_no_cause() -> None:
    """As seen with JAX 0.11 where another process held most of an H200."""
    wanted = "E1127 21:19:04.35{}    1508 cuda_executor.cc:1365] [0] Failed to allocate device memory of {}GiB (39255429120 bytes): "
    lines = "\n".join(wanted.format(*each) + "RESOURCE_EXHAUSTED: : CUDA_ERROR_OUT_OF_MEMORY: out of memory" for each in ((1, 40), (2, 36)))
    assert name_of(f"{lines}\n") == "cuda-smaller-allocation"
    raised = "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: : CUDA_ERROR_OUT_OF_MEMORY: out of memory"
    assert name_of(f"{lines}\n{FRAMES}{raised}\n") == "jax-out-of-memory"
    found = find(f"{lines}\n=== Source Location Trace: ===\n{FRAMES}FloatingPointError: invalid value (nan) encountered in log\n")
    assert found
    assert (found.error.name, found.line) == (UNCAUGHT, "FloatingPointError: invalid value (nan) encountered in log")


def test_of_compute_sanitizer_the_access_is_told_that_it_found() -> None:
    """As seen with CUDA 13.0 on an H200."""
    found = "========= Invalid __global__ write of size 4 bytes\n=========     at k+0x80\n"
    raised = f"{FRAMES}cupy_backends.cuda.api.driver.CUDADriverError: CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure\n"
    behind = "========= Target application returned an error\n========= ERROR SUMMARY: 35 errors\n"
    assert name_of(f"========= COMPUTE-SANITIZER\nstarting\n{found}{raised}{behind}") == "cuda-illegal-memory-access"
    assert name_of(f"starting\n{FRAMES}ValueError: no\n{behind}") == UNCAUGHT


def test_of_a_cuda_graph_the_call_that_may_not_stand_in_it_is_told() -> None:
    """As seen with PyTorch 2.11 on an H200."""
    invalid = "torch.AcceleratorError: CUDA error: operation failed due to a previous error during capture"
    call = "torch.AcceleratorError: CUDA error: operation not permitted when stream is capturing"
    between = "\nDuring handling of the above exception, another exception occurred:\n\n"
    found = find(f"{FRAMES}{call}\n{between}{FRAMES}{invalid}\n")
    assert found
    assert (found.error.name, found.line) == ("cuda-graph-capture", call)


def test_operators_named_like_collectives_are_none() -> None:
    for name, error in (("AllReduce", "mindspore-collective-failed"), ("AlltoAllV", "mindspore-collective-failed"),
                        ("ReduceSum", "mindspore-kernel-failed"), ("BroadcastTo", "mindspore-kernel-failed")):  # fmt: skip
        found = find(f"RuntimeError: Launch kernel failed, name:Default/{name}-op1")
        assert found
        assert found.error.name == error
