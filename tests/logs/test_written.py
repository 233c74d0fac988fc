"""How much all ranks had written by when."""

from __future__ import annotations

import pytest

from ranklaunch.logs import written
from ranklaunch.logs.written import Written

TIMES = b"f 0 rank_0.log\n0 100 1000000\nf 1 rank_1.log\n1 40 2000000\n0 160 3000000\n"


@pytest.mark.parametrize("cut", [len(TIMES), 7])
def test_all_logs_of_a_node_count_together(cut: int) -> None:
    found = Written()
    found.feed_all(TIMES[i : i + cut] for i in range(0, len(TIMES), cut))
    assert found.points == [(1.0, 100), (2.0, 140), (3.0, 200)]


def test_of_very_many_points_the_first_and_the_last_are_kept() -> None:
    lines = [b"f 0 rank_0.log\n", *(b"0 %d %d\n" % (i, i * 1000) for i in range(1, 50_000))]
    found = Written()
    found.feed_all(lines)
    assert len(found.points) <= written.MOST_KEPT
    assert (found.points[0], found.points[-1]) == ((0.001, 1), (49.999, 49_999))
    assert found.points == sorted(found.points)


def test_nodes_add_up_at_equal_times_by_node_0s_clock() -> None:
    found = written.together({0: [[(0.0, 10), (12.0, 30)]], 1: [[(100.0, 5), (106.0, 50)]], 2: [[]]}, {0: 0.0, 1: -100.0, 2: 0.0})
    assert (found[0], found[-1], len(found)) == ((0.0, 15), (12.0, 80), written.MOST_SHOWN + 1)
    assert [total for at, total in found if at in (5.95, 6.0, 11.95)] == [15, 60, 60]
    assert written.together({0: [[(5.0, 10)]]}, {0: 1.0}) == ((6.0, 10),)
    assert written.together({0: [[]]}, {0: 0.0}) == ()


def test_nodes_that_share_a_folder_add_up_whoever_was_sooner() -> None:
    found = written.together({0: [[(10.0, 5), (12.0, 7)], [(0.0, 100), (11.0, 130)]]}, {0: 0.0})
    assert (found[0], found[-1]) == ((0.0, 100), (12.0, 137))
    assert [total for _, total in found] == sorted(total for _, total in found)
