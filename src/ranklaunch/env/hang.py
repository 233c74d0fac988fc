"""What is done about jobs that hang. Few say anything of it, so a start imports this where one does."""

from __future__ import annotations

from ranklaunch.env import parse
from ranklaunch.env.reader import Variable

OBSERVE, STOP, RESTART, OFF = "observe", "stop", "restart", "off"
LEAST_S = 0.5


def slow(text: str) -> float:
    """Parse the factor of a slow job. 0 turns the watch off."""
    number = parse.decimal(text)
    if number is None or 0 < number < 1:
        msg = "expected a number, at least 1, or 0 for off"
        raise ValueError(msg)
    return number


def rules(text: str) -> str:
    """As they are: whoever watches makes patterns of them. Raises ValueError with what was expected."""
    from ranklaunch.hangs import expect

    expect.parse(parse.text(text))
    return text


HANG = Variable(
    "hang", ("RANKLAUNCH_HANG",), parse.OneOf(OBSERVE, STOP, RESTART, OFF), OBSERVE, "what is done where no rank of any node moves: "
    "observe: it is said, and evidence is taken; stop: the job fails with 75; restart: the same, as a failure that may be restarted; "
    "off: nobody looks", option="--hang",
)  # fmt: skip
HANG_S = Variable(
    "hang_s", ("RANKLAUNCH_HANG_S",), parse.seconds_from(LEAST_S), 300.0, "seconds without any sign of life after which a job is "
    "suspected to hang", option="--hang-s",
)  # fmt: skip
FIRST_STEP_S = Variable(
    "first_step_s", ("RANKLAUNCH_FIRST_STEP_S",), parse.seconds_from(LEAST_S), 1800.0, "the same before the first step, when programs load "
    "and compile", option="--first-step-s",
)  # fmt: skip
EXPECT = Variable(
    "expect", ("RANKLAUNCH_EXPECT",), rules, "", "what is expected of the ranks' output: rules with semicolons between them, each REGEX by "
    "N s, REGEX every N s, REGEX is number, or REGEX < NUMBER, with <, <=, > or >=, a number or Kx median, and perhaps for N s",
    option="--expect",
)  # fmt: skip
SLOW = Variable(
    "slow", ("RANKLAUNCH_SLOW",), slow, 2.0, "factor by which steps must take longer than before for the job to be reported as slow; 0: "
    "nothing is reported", option="--slow",
)  # fmt: skip

VARIABLES: tuple[Variable[object], ...] = (HANG, HANG_S, FIRST_STEP_S, EXPECT, SLOW)
