"""Python stacks that wait for other ranks: collectives, messages between ranks, rendezvous, and waiting for a device that runs them.

A stack waits by the function and the file of one of its frames, as libraries have them, or by the source line of its innermost frame:
calls of C, such as mpi4py's Allreduce, have no frame of their own. Names that any program uses (wait, join, recv) say nothing by
themselves: a data loader and a lock have them as well.
"""

from __future__ import annotations

import re
from typing import NamedTuple

MOST_FRAMES = 20  # of a stack, the innermost
# As py-spy writes a frame, and as faulthandler does.
_FRAME = re.compile(r'(?P<name>\S+) \((?P<file>[^()]+):(?P<line>\d+)\)|File "(?P<filed>[^"]+)", line (?P<lined>\d+) in (?P<named>.+)')
_COLLECTIVE = (
    r"(?:grouped_|hierarchical_|coalesced_|neighbor_|i)?"
    r"(?:all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast_(?:object|tensor|data|parameters|optimizer)\w*|barrier)\w*"
    r"|monitored_barrier|wait_for_everyone|batch_isend_irecv|ring_exchange|init_process_group|initialize_distributed|init_parallel_env"
)
_FUNCTION = re.compile(rf"(?i)_*(?:{_COLLECTIVE}|broadcast|synchronize)")
_BACKWARD = "backward"
# (file, functions of it that wait, or None for all of them, name to show or "" for the function's own)
_PLACES: tuple[tuple[re.Pattern[str], re.Pattern[str] | None, str], ...] = tuple(
    (re.compile(file), re.compile(function) if function else None, shown)
    for file, function, shown in (
        (r"torch/distributed/(?:distributed_c10d|rendezvous|_functional_collectives|nn/functional)\.py$", "", ""),
        (r"torch/distributed/(?:fsdp|_composable|tensor|pipelining|checkpoint)/", "", ""),
        (r"torch/nn/parallel/distributed\.py$", r"_?(?:sync|forward|_pre_forward|prepare|reduce)", ""),
        (r"torch/autograd/graph\.py$", r"_engine_run_backward", _BACKWARD),  # with DDP's hooks, which wait for the others
        (r"torch/(?:cuda|accelerator)/(?:__init__|streams)\.py$", r"synchronize|wait", ""),
        (r"torch_npu/npu/(?:__init__|streams|utils)\.py$", r"synchronize|wait", ""),
        (r"deepspeed/comm/", "", ""),
        (r"deepspeed/runtime/pipe/p2p\.py$", "", ""),
        (r"megatron/core/(?:pipeline_parallel/p2p_communication|tensor_parallel/mappings)\.py$", "", ""),
        (r"horovod/", r"synchronize|poll|.*(?:all|broadcast|barrier|join)", ""),
        (r"mindspore/(?:communication|ops/communication|mint/distributed)", "", ""),
        (r"mindspore/common/(?:api|hook_handle)\.py$", r"_?_?(?:exec|run|call)", ""),  # a graph on a device, with its collectives
        (r"paddle/distributed/", r".*(?:all_|broadcast|barrier|send|recv|wait)", ""),
        (r"tensorflow/python/(?:distribute|ops/collective_ops)", "", ""),
        (r"jax/(?:_src/distributed|experimental/multihost_utils)\.py$", "", ""),
    )
)
_CALL = re.compile(
    rf"(?i)\b(?P<name>(?:{_COLLECTIVE}|bcast|broadcast|synchronize|block_until_ready))\s*\("
    r"|\b(?:comm|comm_\w{1,20}|COMM_WORLD|dist|distributed|hvd|mpi|process_group|pg|group)\.(?P<of>[a-z_]\w{1,40})\s*\("
    r"|\b(?:work|handle|request|req|reqs|future)\w{0,20}\.(?P<wait>wait(?:all)?)\s*\("
    r"|\.(?P<device>item|backward)\s*\(\s*\)"
)


class Frame(NamedTuple):
    function: str
    file: str
    line: str


def frames(stack: str) -> list[Frame]:
    """Return the frames of a stack, the innermost first. stack: a frame a line."""
    found = [match for line in stack.splitlines()[:MOST_FRAMES] if (match := _FRAME.search(line))]
    return [Frame(each["name"] or each["named"], each["file"] or each["filed"], each["line"] or each["lined"]) for each in found]


def inside(stack: str, call: str = "") -> str:
    """Return the name of the collective that a stack waits in, the outermost of several, or "" for none.

    call: source line at which the innermost frame stands, "" where unknown.
    """
    names = [name for frame in frames(stack) if (name := _name(frame))]
    if names:
        return names[-1]
    found = _CALL.search(call)
    return found[found.lastgroup or 0] if found else ""


def _name(frame: Frame) -> str:
    if _FUNCTION.fullmatch(frame.function):
        return frame.function
    for file, function, shown in _PLACES:
        if file.search(frame.file) and (not function or function.match(frame.function)):
            return shown or frame.function
    return ""
