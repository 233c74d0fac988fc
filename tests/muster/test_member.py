"""A node's side of the muster: how it comes to node 0, what it tells it, and what it makes of what it hears."""

from __future__ import annotations

import errno

import pytest
from muster_machines import EPOCH, FACTS, Lone, finish, suspect

from ranklaunch.muster import events
from ranklaunch.muster.member import GATE, GATHERING, OVER, RELEASED, STOPPING
from ranklaunch.verdict import messages
from ranklaunch.verdict.blame import Judgement
from ranklaunch.verdict.model import Note

RESET = OSError(errno.ECONNRESET, "Connection reset by peer")
SILENT = OSError(errno.ETIMEDOUT, "Connection timed out")
REFUSED = events.Unreached("no answer on port 18889 (connection refused)", refused=True)
NO_ANSWER = events.Unreached("no answer on port 18889 (timed out)", refused=True, silent=True)
FAILED = messages.as_message(Judgement("failed", 3, "rank 1 failed"))


def near(seconds: float) -> object:
    """A millionth of the seconds since 1970 is half an hour."""
    return pytest.approx(seconds, abs=1e-3)


def released(**more: int) -> Lone:
    lone = Lone()
    lone.feed(events.Start())
    lone.come(**more)
    lone.feed(events.Ready(FACTS, 1, "h1"))
    lone.hear("release", text="all are here", shared={"key": "of 0"})
    return lone


# The plain course


def test_it_comes_is_released_and_stops_with_the_others() -> None:
    lone = Lone()
    lone.feed(events.Start())
    assert lone.dials == [False]
    lone.feed(events.Busy("installing"))
    assert lone.sent == []
    lone.come()
    assert lone.sent[0] == {
        "type": "hello", "node": 1, "host": "my-host", "instance": "me", "doing": "installing", "attempt": 1, "round": 0,
    }  # fmt: skip
    lone.feed(events.Ready(FACTS, 1, "h1", {"key": "mine"}))
    assert lone.sent[-1]["facts"] == FACTS
    assert lone.sent[-1]["offers"] == {"key": "mine"}
    lone.hear("release", text="all are here", shared={"key": "of 0"})
    assert lone.member.shared == {"key": "of 0"}
    lone.hear("stop", judgement=FAILED)
    lone.feed(events.Report((messages.suspect(suspect(1)),), (), (Note("a note"),)))
    lone.hear("judgement", judgement=FAILED)
    assert lone.types() == ["hello", "ping", "ready", "stopping", "report"]
    judgement = messages.judgement(FAILED)
    assert lone.calls == [events.Released("all are here"), events.Stop(judgement), events.Judged(judgement)]
    assert lone.member.over
    lone.feed(events.Leave())
    assert lone.types()[-1] == "bye"
    assert lone.member.joined
    lone.feed(events.Broken(0, None))
    assert not lone.member.joined


def test_it_asks_for_the_time_often_at_first() -> None:
    lone = Lone()
    lone.come()
    pings = [m["sent"] for m in lone.sent if m["type"] == "ping"]
    lone.time.run(5)
    pings = [m["sent"] for m in lone.sent if m["type"] == "ping"]
    assert pings == pytest.approx([0.0, 0.1, 0.2, 0.3, 1.3, 2.3, 3.3, 4.3])


def test_the_clock_of_node_0_is_known_to_within_the_best_round_trip() -> None:
    lone = Lone()
    lone.come()
    lone.time.run(1)
    lone.hear("pong", sent=0.0, time=EPOCH + 100.5)
    assert lone.member.offset == EPOCH + 100.0
    lone.time.run(1)
    lone.hear("pong", sent=1.9, time=EPOCH + 102.05)
    assert lone.member.offset == near(EPOCH + 100.1)
    lone.hear("pong", sent=0.0, time=EPOCH + 101.5)  # a longer trip
    lone.hear("pong", sent=5.0, time=EPOCH + 500)  # from the future
    lone.hear("pong", sent=1.99, time=9e99)
    assert lone.member.offset == near(EPOCH + 100.1)
    lone.time.run(301)
    lone.hear("pong", sent=302.0, time=EPOCH + 403.5)  # older measurements are not trusted any more
    assert lone.member.offset == near(EPOCH + 101.0)


def test_a_clock_of_node_0_that_was_set_is_believed_at_once() -> None:
    """By nodes that hear of it by a good round trip and by a bad one alike: else their failures would be of two times."""
    lone = Lone()
    lone.come()
    lone.time.run(1)
    lone.hear("pong", sent=0.99, time=EPOCH + 100.995)
    lone.time.run(1)
    lone.hear("pong", sent=1.5, time=EPOCH + 102.0)  # to within its own trip the same
    assert lone.member.offset == near(EPOCH + 100.0)
    lone.hear("pong", sent=1.5, time=EPOCH - 3497.75)
    assert lone.member.offset == near(EPOCH - 3499.5)


def test_what_is_waited_for_is_said_once_this_node_is_ready() -> None:
    lone = Lone()
    lone.feed(events.Start())
    lone.come()
    assert lone.member.missing == "the other nodes"
    lone.hear("status", missing="1 of 2 nodes")
    assert lone.said == []
    lone.feed(events.Ready(FACTS, 1, ""))
    lone.hear("status", missing="1 of 2 nodes")
    assert lone.said == ["muster: waiting for 1 of 2 nodes"]
    assert lone.member.missing == "1 of 2 nodes"
    lone.hear("release")
    assert lone.member.missing == ""


def test_node_0_leaves() -> None:
    lone = released()
    lone.hear("dismissed")
    assert lone.types()[-1] == "bye"
    assert lone.calls[1:] == [events.Dismissed()]
    lone.feed(events.Fail(messages.suspect(suspect(1))), events.Broken(0, None), events.Leave())
    lone.hear("judgement", judgement=FAILED)
    assert lone.types()[-1] == "bye"
    assert lone.calls[1:] == [events.Dismissed()]
    assert lone.dials == [False]


def test_it_leaves() -> None:
    lone = released()
    lone.feed(events.Leave())
    assert lone.types()[-1] == "bye"
    lone.feed(events.Broken(0, None))
    assert lone.calls[1:] == []
    assert lone.member.state == OVER


# On the way to node 0


def test_it_comes_again_later_each_time_and_does_not_tire() -> None:
    """Ten minutes and more: the waits do not grow beyond half a second, and no number does beyond what a float holds."""
    lone = Lone()
    lone.feed(events.Start())
    times = []
    while lone.time.clock < 900:
        before = len(lone.dials)
        lone.feed(REFUSED)
        began = lone.time.clock
        lone.time.until(began + 10, lambda: len(lone.dials) > before)  # noqa: B023
        times.append(lone.time.clock - began)
    assert times[:7] == pytest.approx([0.02, 0.04, 0.08, 0.16, 0.32, 0.5, 0.5])
    assert times[-1] == pytest.approx(0.5)
    assert len(times) > 1024


def test_why_it_does_not_reach_node_0_is_said() -> None:
    lone = Lone()
    lone.feed(events.Start())
    assert lone.member.missing == "node 0 (127.0.0.1): nothing heard of it yet"
    lone.feed(REFUSED, events.Ready(FACTS, 1, ""))
    lone.time.run(2)
    assert lone.said == ["muster: waiting for node 0 (127.0.0.1): no answer on port 18889 (connection refused)"]
    lone.feed(events.Reached())
    assert lone.member.why == "the program at port 18889 sends no greeting"
    lone.feed(events.Broken(0, None, spoke=False))
    assert lone.member.why == "the program at port 18889 is not ranklaunch"
    lone.feed(events.Reached())
    assert lone.member.why == "the program at port 18889 is not ranklaunch"  # which says more
    lone.time.run(30)
    assert lone.member.why == "the program at the port does not answer as ranklaunch"
    assert lone.hung_up == 1
    assert len(lone.said) == 2


def test_that_the_keys_differ_is_said_to_the_end() -> None:
    """Node 0 may end meanwhile, and then says less."""
    lone = Lone()
    lone.feed(events.Start(), events.Reached(), events.Greeted(), events.Broken(0, None))
    differ = "it closes the connection: another RANKLAUNCH_SECRET there, or another job's name"
    assert lone.member.why == differ
    lone.feed(events.Reached(), events.Greeted(), events.Broken(0, RESET))
    assert lone.member.why == f"Connection reset by peer; before that: {differ}"
    lone.feed(REFUSED)
    assert lone.member.why == f"no answer on port 18889 (connection refused); before that: {differ}"
    lone.come()
    lone.feed(events.Broken(0, None))
    assert lone.member.why == "the connection was closed"


def test_what_it_has_said_it_says_again_when_it_comes_back() -> None:
    lone = released()
    lone.feed(events.Broken(0, RESET))
    lone.feed(events.Done(messages.finish(finish(1))))
    assert lone.types()[-1] == "ready"
    lone.time.run(0.1)
    assert lone.dials == [False, True]  # where node 0 was a moment ago
    lone.come()
    assert lone.types()[-4:] == ["hello", "ping", "ready", "done"]


def test_its_name_is_looked_up_anew_where_it_is_not_found_again() -> None:
    lone = released()
    lone.feed(events.Broken(0, RESET))
    lone.time.run(0.1)
    lone.feed(REFUSED)
    lone.time.run(0.1)
    assert lone.dials == [False, True, False]


GONE = [(None, 137, RELEASED), (RESET, 137, STOPPING), (SILENT, 75, RELEASED), (None, 137, GATE), (SILENT, 75, GATE)]


@pytest.mark.parametrize(("error", "code", "state"), GONE)
def test_node_0_is_gone(error: OSError | None, code: int, state: str) -> None:
    lone = released()
    if state == STOPPING:
        lone.hear("stop", judgement=FAILED)
    if state == GATE:
        lone.hear("again", judgement=FAILED, next={}, round=1)
    lone.feed(events.Broken(0, error))
    while not lone.member.over and lone.time.clock < 9:
        lone.time.run(0.3)
        lone.feed(REFUSED)
    assert (lone.time.clock < 1.5) is True
    assert isinstance(lone.calls[-1], events.Lost)
    assert lone.calls[-1].suspect.exit_code == code
    assert lone.calls[-1].suspect.at == EPOCH
    assert "node 0 (127.0.0.1)" in lone.calls[-1].suspect.reason


@pytest.mark.parametrize(("error", "code"), [(RESET, 75), (None, 137)])
def test_a_host_that_resets_and_then_is_silent_was_not_killed(error: OSError | None, code: int) -> None:
    """As when what this node sends is lost, and what node 0 sends is not: that gives this node up, and ends. Of a container that was
    killed the address goes too, but its connections are closed first."""
    lone = released()
    lone.feed(events.Broken(0, error))
    lone.time.run(5)
    lone.feed(NO_ANSWER)
    assert isinstance(lone.calls[-1], events.Lost)
    assert lone.calls[-1].suspect.exit_code == code


@pytest.mark.parametrize("state", [RELEASED, GATE])
def test_node_0_that_was_started_anew_is_another(state: str) -> None:
    """It knows nothing of the rounds that this node has behind it."""
    lone = released()
    if state == GATE:
        lone.hear("again", judgement=FAILED, next={}, round=1)
        lone.feed(events.Ready(FACTS, 1, ""))
    lone.feed(events.Broken(0, RESET))
    lone.come("another hub")
    assert isinstance(lone.calls[-1], events.Lost)
    assert lone.member.over


def test_before_the_release_it_may_be_started_anew() -> None:
    lone = Lone()
    lone.feed(events.Start())
    lone.come()
    lone.feed(events.Ready(FACTS, 1, ""), events.Broken(0, None))
    lone.time.run(60)
    lone.come("another hub", attempt=2)
    assert lone.types()[-3:] == ["hello", "ping", "ready"]
    assert lone.member.state == GATHERING


@pytest.mark.parametrize("event", [events.Reached(), events.Greeted(), events.GreetingDue()], ids=str)
def test_once_all_is_over_it_takes_no_new_connection(event: events.Event) -> None:
    lone = released()
    lone.feed(events.Leave(), event)
    assert lone.hung_up == 1


def test_one_that_is_sent_away_hears_why() -> None:
    """It was never welcome."""
    lone = Lone()
    lone.feed(events.Start(), events.Reached(), events.Greeted())
    lone.hear("judgement", judgement=FAILED)
    assert lone.types() == ["hello"]
    assert lone.calls == [events.Judged(messages.judgement(FAILED))]


def test_how_long_another_ranklaunch_answers_is_known() -> None:
    """Not what is said by a proxy, which accepts connections for a node 0 that has not come yet."""
    lone = Lone()
    closed, closed_by_a_proxy = events.Broken(0, None, True), events.Broken(0, None, False)
    lone.feed(events.Start(), events.Reached(), closed_by_a_proxy)
    assert lone.member.strange_since is None
    lone.time.run(2)
    for _ in range(2):
        lone.feed(events.Reached(), events.Greeted(), closed)
        lone.time.run(3)
    assert lone.member.strange_since == 2.0
    lone.feed(REFUSED)
    assert lone.member.strange_since is None
    lone.feed(events.Reached(), events.Greeted(), closed)
    lone.come()
    assert lone.member.strange_since is None
