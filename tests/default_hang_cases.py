"""Jobs that hang, with default settings but for the times, as data: a row for each, with what must be named.

Columns: method, nodes x ranks of a node, the moment at which a rank gets stuck, the place where it is stuck (children/stuck.py).
"""

from __future__ import annotations

from typing import NamedTuple

HANG_S, FIRST_STEP_S = 5, 10
COLLECTIVE = "collective"
TYPICAL = ("spawn 2 x 2 many lock", "torchrun 2 x 1 one busy loop")  # CI runs these


class Cell(NamedTuple):
    """moment: before: the first output; one: after a line; three, many: after so many steps; exit: after the last step."""

    method: str
    nodes: int
    slots: int
    moment: str
    place: str

    @property
    def size(self) -> int:
        return self.nodes * self.slots

    @property
    def stuck(self) -> int:
        """The rank that gets stuck."""
        return self.size // 2

    @property
    def names(self) -> tuple[int, ...] | None:
        """Suspects that must be named; () for none, since the only rank stands out from nobody; None where either of two ranks may be
        meant: each waits in a collective, and the other one has ended or waits in another collective."""
        if self.size == 1:
            return ()
        return None if self.place == COLLECTIVE and self.size == 2 else (self.stuck,)

    @property
    def backend(self) -> str:
        """Library of the collectives: the real one where the ranks are few enough for a machine of two cores."""
        if self.moment == "exit" or self.size == 1 or self.size > 4:
            return "star"
        return {"mpirun": "mpi", "torchrun": "gloo", "accelerate": "gloo", "megatron": "gloo"}.get(self.method, "star")

    def __str__(self) -> str:
        return f"{self.method} {self.nodes} x {self.slots} {self.moment} {self.place}"


def _cell(row: str) -> Cell:
    method, nodes, _, slots, moment, *place = row.split()
    return Cell(method, int(nodes), int(slots), moment, " ".join(place))


ROWS = """
spawn      1 x 2  before  collective
spawn      4 x 2  one     data loader
spawn      4 x 1  three   lock
spawn      1 x 1  many    file system
spawn      1 x 8  exit    busy loop
spawn      2 x 2  before  socket
torchrun   2 x 1  three   collective
torchrun   1 x 2  many    data loader
torchrun   4 x 2  exit    lock
torchrun   4 x 1  before  file system
torchrun   1 x 1  one     busy loop
torchrun   1 x 8  three   socket
mpirun     2 x 8  exit    collective
mpirun     2 x 1  before  data loader
mpirun     1 x 2  one     lock
mpirun     4 x 2  three   file system
mpirun     4 x 1  many    busy loop
mpirun     1 x 1  exit    socket
msrun      2 x 2  one     collective
msrun      2 x 8  three   data loader
msrun      2 x 1  many    lock
msrun      1 x 2  exit    file system
msrun      2 x 2  before  busy loop
msrun      2 x 1  one     socket
deepspeed  1 x 8  many    collective
deepspeed  2 x 2  exit    data loader
deepspeed  2 x 8  before  lock
deepspeed  2 x 1  one     file system
deepspeed  1 x 2  three   busy loop
deepspeed  4 x 2  many    socket
accelerate 1 x 1  before  collective
accelerate 1 x 8  one     data loader
accelerate 2 x 2  three   lock
accelerate 2 x 8  many    file system
accelerate 2 x 1  exit    busy loop
accelerate 1 x 2  before  socket
megatron   4 x 1  three   collective
megatron   1 x 1  many    data loader
megatron   1 x 8  exit    lock
megatron   2 x 2  before  file system
megatron   2 x 8  one     busy loop
megatron   2 x 1  three   socket
ranktable  4 x 2  exit    collective
ranktable  4 x 1  before  data loader
ranktable  1 x 1  one     lock
ranktable  1 x 8  three   file system
ranktable  2 x 2  many    busy loop
ranktable  2 x 8  exit    socket
pytorch    1 x 1  one     collective
pytorch    2 x 1  three   data loader
pytorch    4 x 1  many    lock
pytorch    1 x 1  exit    file system
pytorch    2 x 1  before  busy loop
pytorch    4 x 1  one     socket
tensorflow 2 x 1  many    collective
tensorflow 4 x 1  exit    data loader
tensorflow 1 x 1  before  lock
tensorflow 2 x 1  one     file system
tensorflow 4 x 1  three   busy loop
tensorflow 1 x 1  many    socket
plain      4 x 1  before  collective
plain      1 x 1  one     data loader
plain      2 x 1  three   lock
plain      4 x 1  many    file system
plain      1 x 1  exit    busy loop
plain      2 x 1  before  socket
"""
CELLS = [_cell(row) for row in ROWS.strip().splitlines()]

# Programs that are healthy (children/lives.py).
HEALTHY = [
    "compiles_without_a_word",
    "compiles_after_a_line",
    "a_compiler_of_its_own",
    "reads_before_the_first_line",
    "reads_after_a_line",
    "waits_for_the_others_data",
    "downloads",
    "forks_workers",
    "a_word_now_and_then",
    "dots",
    "slow_steps",
    "steps_that_grow",
    "a_slow_first_step",
    "a_bar",
    "to_stderr",
    "one_rank_speaks",
    "ranks_take_turns",
    "to_a_file_of_its_own",
    "saves",
    "one_rank_saves",
    "saves_in_the_background",
    "evaluates_in_bursts",
    "one_rank_computes",
    "a_loader_reads",
    "waits_for_a_lock",
    "is_stopped_for_a_while",
    "is_debugged",
    "knows_better",
    "one_rank_ends_before",
    "saves_at_exit",
    "frees_memory_at_exit",
    "saves_on_sigterm",
]
