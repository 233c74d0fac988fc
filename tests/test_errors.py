"""One exit code per kind of error, and every problem in one message."""

from __future__ import annotations

import errno

import pytest

from ranklaunch import errors


def classes() -> list[type[errors.RanklaunchError]]:
    return [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, errors.RanklaunchError)]


def test_exit_codes_are_unique_and_described() -> None:
    codes = [each.exit_code for each in classes()]
    assert len(set(codes)) == len(codes)
    assert {0, errors.NO_PROGRESS, *codes} == errors.EXIT_CODES.keys()  # the second: of a verdict, and of no error
    assert all(errors.EXIT_CODES.values())


def test_exit_codes_are_those_of_the_contract() -> None:
    assert {each.__name__: each.exit_code for each in classes()} == {
        "RanklaunchError": 70,
        "UsageError": 2,
        "ConfigError": 78,
        "WaitError": 75,
        "MissingProgramError": 69,
    }
    # 126 and 127 are a shell's, 128 and above say that a signal killed the rank.
    assert all(0 < code < 126 for code in (each.exit_code for each in classes()))


def test_a_configuration_error_holds_every_problem() -> None:
    assert errors.ConfigError("one").problems == ("one",)
    assert errors.ConfigError(iter(["one", "two"])).problems == ("one", "two")
    assert str(errors.ConfigError(["one", "two"])) == "one\ntwo"


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("torchrnu", ", did you mean 'torchrun'?"),
        ("TORCHRUN", ", did you mean 'torchrun'?"),
        ("sspawn", ", did you mean 'spawn'?"),
        ("xyz", ""),
        ("", ""),
        ("t" * 10_000, ""),
    ],
)
def test_nearest(word: str, expected: str) -> None:
    assert errors.nearest(word, ["torchrun", "spawn", "plain"]) == expected


def test_numbers_that_follow_each_other_are_said_as_rows() -> None:
    assert [errors.numbered(numbers, "rank") for numbers in ([3], [9, 0, 1, 2, 4], [5, 4])] == ["rank 3", "ranks 0-2,4,9", "ranks 4-5"]


def test_what_is_no_number_is_none() -> None:
    """Python's own tests take more for digits than int() does, and int() refuses thousands of them."""
    assert [errors.number(text) for text in ("0", "007", "12")] == [0, 7, 12]
    assert [errors.number(text) for text in ("", "-1", "1_0", " 1", "\u00b2", "\u0663", "9" * 5000)] == [None] * 7


def test_a_limit_on_processes_is_named() -> None:
    again = OSError(errno.EAGAIN, "Resource temporarily unavailable")
    assert str(errors.refused(again)).endswith("(a limit on processes and threads: the container's, or ulimit -u)")
    assert str(errors.refused(OSError(errno.EMFILE, "Too many open files"))).endswith("Too many open files")


def test_what_the_system_refuses_for_good_is_no_shortage() -> None:
    shortage, refusal = OSError(errno.ENOSPC, "No space left", "/l/x"), PermissionError(errno.EACCES, "Permission denied", "/l/x")
    assert (errors.refused(shortage).exit_code, errors.refused(refusal).exit_code) == (75, 78)
    assert str(errors.refused(refusal)) == "/l/x: Permission denied"
