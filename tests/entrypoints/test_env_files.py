"""--env-file: an environment from lines, from JSON, or as the kernel gives it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import helpers
import pytest

from ranklaunch.cli import options
from ranklaunch.errors import ConfigError
from ranklaunch.system import disk


@helpers.for_each(
    [
        ("", {}),
        ("\n\n  \n", {}),
        ("A=1", {"A": "1"}),
        ("A=1\nB=2\n", {"A": "1", "B": "2"}),
        ("A=1\r\nB=2\r\n", {"A": "1", "B": "2"}),
        ("# a comment\n  # another\nA=1 # none\n", {"A": "1 # none"}),
        ("A=\nB= \nC==\n", {"A": "", "B": " ", "C": "="}),
        ("export A=1\n export  B=export C\nexport=2", {"A": "1", "B": "export C", "export": "2"}),
        ("  A =1", {"A": "1"}),
        ("A=b=c=d", {"A": "b=c=d"}),
        ("A='quotes stay'\nB=\"so\"\nC=$HOME", {"A": "'quotes stay'", "B": '"so"', "C": "$HOME"}),
        ("A=1\nA=2", {"A": "2"}),
        ("_A1=x\na.b-c=y", {"_A1": "x", "a.b-c": "y"}),
        ("A=Größe 训练 🚀", {"A": "Größe 训练 🚀"}),
        ("A=\udce9", {"A": "\udce9"}),
        # As in /proc/PID/environ: values may hold line ends.
        ("A=1\0", {"A": "1"}),
        ("A=1\nB=2\0C=#3\0", {"A": "1\nB=2", "C": "#3"}),
        ("A=1\0\0B=2", {"A": "1", "B": "2"}),
        ("{}", {}),
        ('{"A": "1", "B": "two\\nlines"}', {"A": "1", "B": "two\nlines"}),
        ('\n  {"A":\n"{}"}\n', {"A": "{}"}),
    ]
)
def test_good(text: str, expected: dict[str, str]) -> None:
    assert options.parse_env(text, "file") == expected


@helpers.for_each(
    [
        ("A", ["file, line 1: expected NAME=VALUE, found 'A'"]),
        (
            "A=1\n\n# x\nB\n=C\n1D=2\n",
            [
                "line 4: expected NAME=VALUE, found 'B'",
                "line 5",
                "line 6",
                "found 4 characters",
                "NUL-separated or the JSON form",
            ],
        ),
        ("A B=1", ["line 1: expected NAME=VALUE, found 'A' and 4 characters more"]),
        ("export A", ["line 1", "'export A'"]),
        ("A=1\0B\0", ["entry 2: expected NAME=VALUE, found 'B'"]),
        ("\n".join(f"line{i}" for i in range(100)), ["line 20:", "... and 80 more"]),
        ("x" * 100_000, ["line 1"]),
        ('["A=1"]', ["line 1"]),
        ("{", ["file: not JSON"]),
        ('{"A": 1}', ["the values of A are not text"]),
        ('{"A": null, "B": [], "C": "x"}', ["the values of A, B are not text"]),
        ('{"A": ' + "[" * 100_000 + "}", ["file: not JSON"]),
    ]
)
def test_bad(text: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        options.parse_env(text, "file")
    message = str(caught.value)
    assert all(word in message for word in words), message[:1000]
    assert len(message) < 5000


def test_a_line_that_is_none_may_be_part_of_a_secret() -> None:
    """As a key with line ends is where somebody has written an environment into a file."""
    key = "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gtZW"
    for text in (
        f"A=1\nDEPLOY_KEY=-----BEGIN\n{key}\nhunter2\n",
        f"{key}\n",
        "HF_TOKEN: hunter2secretvalue\n",
        "HF_TOKEN hunter2secretvalue",
    ):
        with pytest.raises(ConfigError) as caught:
            options.parse_env(text, "file")
        assert key[:20] not in str(caught.value)
        assert "hunter2" not in str(caught.value)
        assert "expected NAME=VALUE" in str(caught.value)


@pytest.mark.parametrize("character", ["\u2028", "\x85", "\x0b", "\x0c", "\x1c", "\r"])
def test_a_value_holds_what_no_line_end_is(character: str) -> None:
    assert options.parse_env(f"A=b{character}c\nB=1\n", "file") == {"A": f"b{character}c", "B": "1"}


@pytest.mark.parametrize("data", [{"A=B": "x"}, {"": "x"}, {"A\0": "x"}, {"A": "x\0y"}, {"A": "\ud800"}])
def test_json_that_is_no_environment_is_refused(data: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"^file: no environment can hold '.*': a NUL, half of a surrogate pair, or"):
        options.parse_env(json.dumps(data), "file")


@pytest.mark.parametrize("text", ["A=1\n", '{"A": "1"}'])
def test_a_byte_order_mark_is_no_part_of_it(text: str) -> None:
    assert options.parse_env(f"\ufeff{text}", "file") == {"A": "1"}


def test_every_hostile_value_survives_the_forms_that_can_hold_it() -> None:
    env = {f"V{i}": value for i, value in enumerate(helpers.HOSTILE.values())}
    assert options.parse_env(json.dumps(env), "file") == env
    assert options.parse_env("".join(f"{name}={value}\0" for name, value in env.items()), "file") == env


# The file itself


def test_it_replaces_the_process_environment(tmp_path: Path) -> None:
    path = tmp_path / "env"
    path.write_bytes(b"RANKLAUNCH_SLOTS=3\0RANKLAUNCH_METHOD=spawn\0MARK=caf\xe9\0")
    found = helpers.call(
        "plan", "--format=json", "--env-file", str(path), "x.py", env={"RANKLAUNCH_METHOD": "plain", "PYTHONUNBUFFERED": "x"}
    )
    assert found.json["method"] == "spawn"
    assert len(found.json["processes"]) == 3
    assert found.json["processes"][0]["env"]["PYTHONUNBUFFERED"] == "1"


def test_it_can_be_the_kernels_own() -> None:
    found = helpers.call("plan", "--format=json", "--env-file=/proc/self/environ", "x.py")
    assert found.code == 0, found.err


@pytest.mark.parametrize(
    ("path", "code", "words"),
    [
        ("/no/such/file", 2, "--env-file /no/such/file: No such file"),
        ("/", 2, "--env-file /: Is a directory"),
        ("/nul\0", 2, "--env-file"),
        ("bad", 78, "--env-file bad, line 2"),
    ],
)
def test_a_file_that_cannot_be_read(path: str, code: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad").write_text("A=1\nB\n", encoding="utf-8")
    found = helpers.call("plan", f"--env-file={path}", "x.py")
    assert (found.code, found.out) == (code, "")
    assert words in found.err


@pytest.mark.parametrize(
    ("name", "path", "words"),
    [
        ("RANKLAUNCH_ENV_FILE", "/no/such/file", "/no/such/file: No such file"),
        ("RANKLAUNCH_ENV_FILE", "bad", "bad, line 2"),
        ("RANKLAUNCH_ROOT", "/no/such", "/no/such: no such folder"),
    ],
)
def test_of_a_variable_the_variable_is_named(name: str, path: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad").write_text("A=1\nB\n", encoding="utf-8")
    found = helpers.call("plan", "x.py", env={name: path})
    assert (found.code, found.out) == (78, "")
    assert f"ranklaunch: {name}={words}" in found.err


def test_a_file_without_end_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(options, "MOST_ENV_BYTES", 1000)
    (tmp_path / "large").write_text("A=1\n" * 1000)
    found = helpers.call("plan", f"--env-file={tmp_path}/large", "x.py")
    assert found.code == 78
    assert "larger than 1000 bytes" in found.err
    found = helpers.call("plan", "--env-file=/dev/zero", "x.py")
    assert found.code == 78
    assert "--env-file /dev/zero: a device is there" in found.err


def test_reading_it_is_only_one_way_of_many_to_lose_bytes() -> None:
    assert helpers.call("plan", "--env-file=/proc/self/mem", "x.py").code == 2


def test_a_file_that_has_nothing_yet_is_empty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As /proc/kmsg: a regular file by its kind, of which a read that does not wait gets nothing."""
    readable, writable = os.pipe2(os.O_NONBLOCK)
    given, kmsg = disk.readable, str(tmp_path / "kmsg")
    monkeypatch.setattr(disk, "readable", lambda path: readable if path == kmsg else given(path))
    found = helpers.call("plan", "--env-file", kmsg, "x.py", env={"RANKLAUNCH_SLOTS": "2"})
    assert (found.code, "2 ranks" in found.out) == (0, False), found.err
    os.close(writable)


SHOWN = [sys.executable, "-m", "ranklaunch", "plan", "--format=json", "--env-file"]


@pytest.mark.processes
@pytest.mark.parametrize("line", ['"$@" <(env -0) x.py', 'env -0 | "$@" /dev/stdin x.py', 'env -0 | "$@" - x.py'])
def test_a_pipe_is_read_to_its_end(line: str) -> None:
    env = {**os.environ, "RANKLAUNCH_SLOTS": "3", "LONG": "x" * 100_000}  # more than a pipe holds
    done = subprocess.run(["bash", "-c", line, "bash", *SHOWN], env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["job"]["world_size"] == 3


def test_a_pipe_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "ENV_PIPE_S", 0.2)
    monkeypatch.setattr(options, "MOST_ENV_BYTES", 1000)
    readable, writable = os.pipe()
    try:
        os.write(writable, b"A=1\n")
        found = helpers.call("plan", f"--env-file=/dev/fd/{readable}", "x.py")
        assert (found.code, found.out) == (2, "")
        assert f"--env-file /dev/fd/{readable}: no end within 0.2 s" in found.err
        os.write(writable, b"A=1\n" * 1000)
        found = helpers.call("plan", f"--env-file=/dev/fd/{readable}", "x.py")
        assert (found.code, "larger than 1000 bytes" in found.err) == (78, True)
    finally:
        os.close(readable)
        os.close(writable)
