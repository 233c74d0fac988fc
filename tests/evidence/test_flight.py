"""Flight recorders' dumps: what is read of them, and whom they name."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ranklaunch.evidence import flight, pickles
from ranklaunch.evidence.flight import Stuck

OTHERS = (None, True, "é" * 200, "x" * 255, b"x" * 256, 1 << 500)  # some are of a length that a pickle says in another way
plain_values = st.recursive(
    st.sampled_from(OTHERS) | st.integers(-(1 << 70), 1 << 70) | st.floats(allow_nan=False) | st.text(max_size=8) | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=60)
@given(plain_values, st.sampled_from([3, 4, 5]))
def test_plain_values_are_read_as_python_reads_them(value: object, protocol: int) -> None:
    assert pickles.plain(pickle.dumps(value, protocol=protocol)) == value


class Harmful:
    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("called",)


REFUSED = {
    "a call": pickle.dumps({"entries": [Harmful()]}, protocol=2),
    "an import": pickle.dumps(json.dumps, protocol=2),
    "an object": pickle.dumps(Stuck("", "", 1, "", ()), protocol=4),
    "a tuple as a key": b"\x80\x02})q\x00h\x00h\x00\x86K\x01s.",
    "too many": b"\x80\x02" + b"}" * (pickles.MOST_VALUES + 1) + b".",
    "a set": pickle.dumps({1}, protocol=4),
    "cut off": pickle.dumps({"entries": ["x" * 100]}, protocol=2)[:-20],
    "empty": b"",
    "a text longer than the file": b"\x80\x04\x8d" + b"\xff" * 8 + b"x.",
    "a memo of four thousand million": b"\x80\x02K\x01r\xff\xff\xff\xffh\x05.",
    "a number of a billion digits": b"\x80\x02\x8b\xff\xff\xff\x7f.",
    "left over": b"\x80\x02K\x01K\x02.",
    "a key that is a list": b"\x80\x02}(]K\x01u.",
}


@pytest.mark.parametrize("what", REFUSED)
def test_nothing_else_is(what: str) -> None:
    with pytest.raises(ValueError, match="not a pickle of plain values"):
        pickles.plain(REFUSED[what])


@settings(max_examples=60)
@example(b"\x80\x02]q\x00c\\_builtin__\nbytes\nq\x01)Rq\x02a.")
@given(st.binary(max_size=200) | st.builds(lambda v, i, b: v[: i % len(v)] + b + v[i % len(v) + 1 :],
       st.builds(lambda v: pickle.dumps(v, 2), plain_values), st.integers(0, 10_000), st.binary(max_size=3)))  # fmt: skip
def test_any_bytes_are_a_value_or_refused(data: bytes) -> None:
    try:
        pickles.plain(data)
    except ValueError:
        pass


def dump(*entered: tuple[int, str, list[list[int]], bool], group: str = "0", members: str = "[0, 1, 2]") -> bytes:
    """Of one rank. entered: number, operation, sizes and whether it is finished; in the form of version 2.10."""
    entries = [
        {
            "record_id": i, "pg_id": 0, "process_group": (group, "default_pg"), "collective_seq_id": seq, "p2p_seq_id": 0, "op_id": seq,
            "profiling_name": op, "input_sizes": sizes, "input_dtypes": ["Float"], "state": "completed" if done else "scheduled",
            "retired": done, "is_p2p": False, "time_created_ns": 1,
        }
        for i, (seq, op, sizes, done) in enumerate(entered)
    ]  # fmt: skip
    told = {"version": "2.10", "entries": entries, "pg_config": {group: {"name": group, "desc": "default_pg", "ranks": members}}}
    return pickle.dumps(told, protocol=2)


ALL_REDUCE = "nccl:all_reduce"
FIRST = (1, ALL_REDUCE, [[4]], True)
WAITS = (2, ALL_REDUCE, [[4]], False)

JOBS: dict[str, tuple[dict[int, bytes], list[tuple[object, ...]]]] = {
    "one has not come": ({0: dump(FIRST, WAITS), 1: dump(FIRST), 2: dump(FIRST, WAITS)}, [(2, (0, 2), (1,), (), ())]),
    "another size": (
        {0: dump(FIRST, WAITS), 1: dump(FIRST, (2, ALL_REDUCE, [[5]], False)), 2: dump(FIRST, WAITS)},
        [(2, (0, 1, 2), (), ((1, "all_reduce of [[5]]"),), ())],
    ),
    "another operation": (
        {0: dump(FIRST, WAITS), 1: dump(FIRST, (2, "nccl:broadcast", [[4]], False)), 2: dump(FIRST, WAITS)},
        [(2, (0, 1, 2), (), ((1, "broadcast of [[4]]"),), ())],
    ),
    "each in another": (
        {0: dump(FIRST, WAITS), 1: dump(FIRST, (2, "nccl:broadcast", [[4]], False))},
        [(2, (0, 1), (), ((0, "all_reduce of [[4]]"), (1, "broadcast of [[4]]")), (2,))],
    ),
    "sizes that may differ": (
        {rank: dump((1, "nccl:all_to_all", [[rank + 1]], False)) for rank in range(3)}, [(1, (0, 1, 2), (), (), ())],
    ),
    "one is ahead": (
        {0: dump(FIRST, WAITS), 1: dump(FIRST, (2, ALL_REDUCE, [[4]], True), (3, ALL_REDUCE, [[4]], False)), 2: dump(FIRST, WAITS)},
        [(2, (0, 2), (), (), ())],
    ),
    "a dump is missing": ({0: dump(FIRST, WAITS), 2: dump(FIRST, WAITS)}, [(2, (0, 2), (), (), (1,))]),
    "all have finished": ({rank: dump(FIRST) for rank in range(3)}, []),
    "the smaller group first": (
        {
            0: dump(FIRST, WAITS), 1: dump(FIRST, WAITS),
            2: pickle.dumps({"entries": [], "pg_config": {}}), 3: dump((7, ALL_REDUCE, [[4]], False), group="5", members="[2, 3]"),
        },
        [(7, (3,), (2,), (), ()), (2, (0, 1), (2,), (), ())],
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", JOBS)
def test_who_has_not_arrived(what: str) -> None:
    dumps, expected = JOBS[what]
    told = {rank: json.loads(json.dumps(flight.as_json(flight.standings(data)))) for rank, data in dumps.items()}
    found = flight.stuck({rank: flight.from_json(of_rank) for rank, of_rank in told.items()})
    assert [(each.at, each.waiting, each.missing, each.differing, each.unknown) for each in found] == expected


@settings(max_examples=60)
@given(plain_values)
def test_a_dump_of_any_form_is_read_or_refused(value: object) -> None:
    for told in (value, {"entries": [value, {"process_group": ("0", "x"), "collective_seq_id": 1, "input_sizes": value, "state": value}]}):
        try:
            found = flight.standings(pickle.dumps(told, protocol=2))
        except ValueError:
            continue
        flight.stuck({0: flight.from_json(json.loads(json.dumps(flight.as_json(found))))})


@settings(max_examples=60)
@given(
    st.recursive(st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)
)
def test_whatever_another_node_sends_is_read_or_left_out(told: object) -> None:
    flight.stuck({0: flight.from_json(told)})


AT_ALL = "[rank0]:[E1126 15:44:19.896960933 ProcessGroupNCCL.cpp:689] [Rank 0] Watchdog caught collective operation timeout: "
IN_ITS_GROUP = "ProcessGroupNCCL.cpp:2303] [PG ID 0 PG GUID 0(default_pg) Rank"
SAID = {
    0: f"""{AT_ALL}WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=12000) ran for 12098 milliseconds
[rank0]:[E1126 15:44:19.897145258 {IN_ITS_GROUP} 0]  failure detected by watchdog at work sequence id: 7 PG status: \
last enqueued work: 7, last completed work: 6
""",
    1: f"""[rank1]:[E1126 15:44:26.090337042 {IN_ITS_GROUP} 1] Received a dump signal due to a collective timeout from  rank 0 \
and we will try our best to dump the debug info. Last enqueued NCCL work: 6, last completed NCCL work: 6.This is most likely caused by
""",
}


def test_where_there_is_no_dump_the_words_of_watchdogs_tell() -> None:
    """Those of PyTorch 2.11, as two ranks wrote them on an H200."""
    (stuck,) = flight.stuck({rank: flight.standings_in_output(text) for rank, text in SAID.items()})
    assert (stuck.description, stuck.at, stuck.op, stuck.waiting, stuck.missing) == ("default_pg", 7, "allreduce", (0,), (1,))
    assert flight.standings_in_output("step 1 loss 0.5\n") == {}


def at_7(op: str) -> bytes:
    return dump((6, ALL_REDUCE, [[4]], True), (7, op, [[4]], False))


@pytest.mark.parametrize(
    ("of_the_others", "differing"),
    [
        ((ALL_REDUCE, ALL_REDUCE), ()),
        (("nccl:all_reduce_barrier", "nccl:all_reduce_barrier"), ()),
        (("nccl:all_gather", ALL_REDUCE), ((1, "all_gather of [[4]]"),)),
        (("nccl:all_gather", "nccl:all_gather"), ((0, "allreduce"),)),
    ],
)
def test_a_dump_and_a_watchdog_name_an_operation_in_two_ways(of_the_others: tuple[str, str], differing: tuple[object, ...]) -> None:
    dumps = {rank: flight.standings(at_7(op)) for rank, op in enumerate(of_the_others, 1)}
    (stuck,) = flight.stuck({0: flight.standings_in_output(SAID[0]), **dumps})
    assert (stuck.waiting, stuck.missing, stuck.differing) == ((0, 1, 2), (), differing)


def test_what_is_nested_without_end_holds_nobody_up() -> None:
    deep = (b"\x80\x02}X\x07\x00\x00\x00entries]}(X\x05\x00\x00\x00pg_id)" + b"\x85" * 3000 + b"X\x11\x00\x00\x00collective_seq_idK\x01"
            b"X\x0d\x00\x00\x00process_groupX\x01\x00\x00\x000K\x00\x86uas.")  # fmt: skip
    assert flight.standings(deep)["0"].entered == 1
