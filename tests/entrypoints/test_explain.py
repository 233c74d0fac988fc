"""What is known of a log, also without a job."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import helpers
import pytest

from ranklaunch.catalogue import answer

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
LOST = "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:10895"
OWN = {
    "family": "Site",
    "entry": [
        {
            "name": "site-licence", "kind": "cause", "patterns": ["no licence left for .{1,40}"], "meaning": "All licences are taken.",
            "remedy": "Start later.", "source": "https://example.org/licences",
        },
    ],
}  # fmt: skip


def log(folder: Path, *lines: str) -> Path:
    path = folder / "rank_0.log"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def own(folder: Path, **changed: object) -> Path:
    """A folder with one entry of the user's own."""
    path = folder / "known"
    path.mkdir()
    (path / "site.json").write_text(json.dumps({"family": "Site", "entry": [{**OWN["entry"][0], **changed}]}))  # type: ignore[dict-item]
    return path


def test_what_explains_most_comes_first(tmp_path: Path) -> None:
    path = log(tmp_path, "step 1", LOST, OOM)
    said = helpers.call("explain", str(path))
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith(f"{path}:3: {OOM}\n  cuda-out-of-memory (cause)\n")
    assert f"  {path}:2: gloo-peer-connection-lost (consequence): RuntimeError: [" in said.out


def test_what_ranklaunch_says_on_a_console_is_not_the_programs(tmp_path: Path) -> None:
    """Of a job of one rank, as kubectl logs shows it; where there is nothing else, that counts too."""
    wrong = "./train.sh: line 2: ./prepare.sh: Permission denied"
    ended = f"ranklaunch: failed with exit code 126: rank 0 on node 0 exited with code 126: {wrong}"
    path = log(tmp_path, "step 1", f"[rank 0] {wrong}", "ranklaunch: last lines of rank 0:", f"  {wrong}", ended, "ranklaunch: logs /l")
    assert helpers.call("explain", str(path)).out.startswith(f"{path}:2: [rank 0] {wrong}\n  file-permission-denied (cause)\n")
    path.write_text("ranklaunch: rank 1 died\n")
    assert helpers.call("explain", str(path)).out.startswith(f"{path}:1: ranklaunch: rank 1 died\n")


def test_what_a_thread_failed_of_when_the_program_had_ended_is_no_reason(tmp_path: Path) -> None:
    frames = 'Traceback (most recent call last):\n  File "t.py", line 2, in {}\n    go()\n'
    late = f"Exception in thread heartbeat:\n{frames.format('beat')}ConnectionResetError: [Errno 104] Connection reset by peer\n"
    log = tmp_path / "log"
    log.write_text(f"{frames.format('<module>')}ValueError: loss is nan\n{late}")
    found = helpers.call("explain", str(log), env={})
    assert found.out.startswith(f"{log}:4: ValueError: loss is nan\n")


def test_as_json(tmp_path: Path) -> None:
    found = json.loads(helpers.call("explain", "--format", "json", str(log(tmp_path, LOST, OOM))).out)
    assert (found["schema"], found["skipped_bytes"]) == ("ranklaunch.explain/1", 0)
    assert (found["name"], found["kind"], found["line"], found["line_number"]) == ("cuda-out-of-memory", "cause", OOM, 2)
    assert found.keys() >= {"meaning", "remedy", "retry", "source"}
    assert [other["name"] for other in found["others"]] == ["gloo-peer-connection-lost"]


def test_many_own_errors_that_begin_alike(tmp_path: Path) -> None:
    entry = {"kind": "cause", "meaning": "m", "remedy": "r", "source": "https://example.org"}
    codes = [{**entry, "name": f"code-{code}", "patterns": [rf"vendor error code {code}\b"]} for code in range(1000, 1700)]
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "vendor.json").write_text(json.dumps({"family": "Vendor", "entry": codes}))
    for line, name in (("vendor error code 1699", "code-1699"), (f"vendor error code 7 is passed over\n{OOM}", "cuda-out-of-memory")):
        found = helpers.call("explain", "--format=json", "--known-errors", str(tmp_path / "own"), str(log(tmp_path, line)))
        assert json.loads(found.out)["name"] == name


def test_what_a_program_went_on_after_is_said_where_nothing_is_known(tmp_path: Path) -> None:
    frame = '  File "t.py", line 3, in <module>\n    f()'
    raised = f"step 1\nTraceback (most recent call last):\n{frame}\nRuntimeError: boom --token=aVerySecretWord123"
    said = helpers.call("explain", str(log(tmp_path, raised, "step 2", "step 3", "step 4")))
    last = "The last exception in it: RuntimeError: boom --token=***"
    assert (said.code, said.out) == (1, f"{tmp_path / 'rank_0.log'}: no known error in it\n{last}\n")


def test_nothing_known(tmp_path: Path) -> None:
    said = helpers.call("explain", str(log(tmp_path, "step 1")))
    assert (said.code, said.out) == (1, f"{tmp_path / 'rank_0.log'}: no known error in it\n")
    found = helpers.call("explain", "--format=json", str(log(tmp_path)))
    assert (found.code, json.loads(found.out)["kind"]) == (1, "unknown")


@pytest.mark.one_python
def test_of_a_long_log_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer, "MOST_BYTES", 65536)
    path = log(tmp_path, OOM, "x" * 70_000, LOST)
    found = json.loads(helpers.call("explain", "--format=json", str(path)).out)
    assert (found["name"], found["line_number"], found["others"]) == ("gloo-peer-connection-lost", None, [])
    assert found["skipped_bytes"] == path.stat().st_size - 65536


@pytest.mark.processes
def test_of_standard_input() -> None:
    """A pipe has no end to go to."""
    argv = [sys.executable, "-m", "ranklaunch", "explain", "-"]
    said = subprocess.run(argv, input=f"step 1\n{OOM}\n", capture_output=True, text=True, check=True)
    assert said.stdout.startswith(f"standard input:2: {OOM}\n")


def test_what_is_no_log(tmp_path: Path) -> None:
    for path, what in ((tmp_path / "none", "No such file or directory"), (tmp_path, "a folder, not a log: see `ranklaunch report ")):
        said = helpers.call("explain", str(path))
        assert (said.code, said.out) == (78, "")
        assert what in said.err
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    assert helpers.call("explain", str(fifo)).code == 78
    assert (
        helpers.call("explain").code == helpers.call("explain", "a", "b").code == helpers.call("explain", "--format", "xml", "a").code == 2
    )


def test_lines_are_counted_as_editors_do(tmp_path: Path) -> None:
    """A bar that is drawn anew is one line all the time."""
    path = log(tmp_path, "begun", "\r".join(f"{n}%|#  | {n}/100 [00:01<00:09, 9.00it/s]" for n in range(100)), OOM)
    assert helpers.call("explain", str(path)).out.startswith(f"{path}:3: ")
    assert helpers.call("explain", "--format", "json", str(path)).json["line_number"] == 3


def test_a_carriage_return_in_a_name_ends_no_line(tmp_path: Path) -> None:
    """What dash says of a script with line ends of Windows."""
    path = log(tmp_path, "hi\r", "train.sh: 2: no-tool\r: not found", OOM)
    place, *_, other = helpers.call("explain", str(path)).out.splitlines()
    assert (place, other[: len(str(path)) + 5]) == (f"{path}:3: {OOM}", f"  {path}:2:")
    assert other.endswith("train.sh: 2: no-tool\\r: not found")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_what_powershell_writes_is_read(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "log"
    path.write_bytes(f"\ufeffbegun\r\n{OOM}\r\n".encode(encoding))
    assert helpers.call("explain", str(path)).out.startswith(f"{path}:2: {OOM}\n")


def test_secrets_and_escape_sequences_are_not_shown(tmp_path: Path) -> None:
    said = helpers.call("explain", str(log(tmp_path, f"{OOM} \x1b]0;title\x07 --password=hunter22")))
    assert "hunter22" not in said.out
    assert "\x1b" not in said.out


def test_entries_by_their_words(tmp_path: Path) -> None:
    said = helpers.call("explain", "--find", "closed by peer gloo")
    assert (said.code, said.out.partition(" ")[0]) == (0, "gloo-peer-connection-lost")
    assert helpers.call("explain", "--find", "nothing of the kind").code == 1
    assert "site-licence (cause" in helpers.call("explain", "--find=LICENCE", "--known-errors", str(own(tmp_path))).out
    assert helpers.call("explain", "--find", "gloo", str(log(tmp_path))).code == 2


# The user's own


def test_entries_of_ones_own(tmp_path: Path) -> None:
    path, folder = log(tmp_path, "no licence left for solver"), own(tmp_path)
    assert helpers.call("explain", str(path)).code == 1
    assert "site-licence (cause)" in helpers.call("explain", "--known-errors", str(folder), str(path)).out
    assert "site-licence (cause)" in helpers.call("explain", str(path), env={"RANKLAUNCH_KNOWN_ERRORS": str(folder)}).out


@pytest.mark.parametrize(
    "patterns",
    [
        ["(?i)NO licence LEFT"], [r"no\x20licence"], [r"no\u0020licence"], [r"no\040licence"], ["(?x)no[ ]licence # so", "zzz"],
        ["zzz", "(?i)NO LICENCE"], ["(?s)no.licence"], ["no(?#so) licence"], ["(?i:NO) licence"], ["(?-i:no) licence"],
        [r"(n)(?(1)o|x) lic"], [r"zzz|no licen(c)e (lef)t|(x)\3"], ["(?P<n>n)o lice(?P=n)ce", "zzz"], ["(?<!x)no lic(?=ence)"],
    ],
)  # fmt: skip
def test_patterns_of_all_kinds(tmp_path: Path, patterns: list[str]) -> None:
    folder = own(tmp_path, patterns=patterns)
    said = helpers.call("explain", "--known-errors", str(folder), str(log(tmp_path, "no licence left for solver")))
    assert "site-licence (cause)" in said.out


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        ("ERROR no licence", "ERROR no licence left"),
        ("ERROR 12345", "2026-11-23 17:00:00,123 ERROR 12345 at the node"),
        (r"foo.cc:12", "E1123 10:00:00 foo.cc:12] no licence"),
        (r"^\[rank3\]", "[rank3]: no licence"),
        ("no licence", "[rank3]: no licence"),
        ("^no licence", "[rank3]: no licence"),
    ],
)
def test_patterns_see_what_loggers_put_in_front(tmp_path: Path, pattern: str, line: str) -> None:
    """And lines without that."""
    folder = own(tmp_path, patterns=[pattern])
    assert "site-licence (cause)" in helpers.call("explain", "--known-errors", str(folder), str(log(tmp_path, line))).out


def test_they_win_over_what_is_shipped(tmp_path: Path) -> None:
    path = log(tmp_path, OOM)
    folder = own(tmp_path, name="cuda-out-of-memory", patterns=["CUDA out of memory"], meaning="Ours.")
    assert "  Ours.\n" in helpers.call("explain", "--known-errors", str(folder), str(path)).out


def test_what_is_asked_where_nothing_is_known_stays(tmp_path: Path) -> None:
    folder = own(tmp_path, name="python-uncaught-exception")
    path = log(tmp_path, "Traceback (most recent call last):", '  File "x.py", line 1, in <module>', "    f()", "mymod.StrangeThing: hm")
    assert helpers.call("explain", "--known-errors", str(folder), str(path)).out == helpers.call("explain", str(path)).out


def test_a_pattern_that_takes_for_ever_is_left_out(tmp_path: Path) -> None:
    """And what is shipped is looked up, as run does."""
    folder = own(tmp_path, patterns=["(a+)+$"])
    began = time.process_time()
    said = helpers.call("explain", "--known-errors", str(folder), str(log(tmp_path, f"boom {'a' * 40}!", OOM)))
    assert time.process_time() - began < 10
    assert "cuda-out-of-memory (cause)" in said.out
    assert f"{folder}: its patterns take more than 2 s of CPU time for this log, so they are left out: " in said.err
    assert said.code == 0


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"patterns": ["("]}, "entry 1 (site-licence): patterns: missing ), unterminated subpattern"),
        ({"patterns": ["[[a]]"]}, "entry 1 (site-licence): patterns: Possible nested set at position 1: put a backslash before the"),
        ({"kind": "reason"}, "entry 1 (site-licence): kind is 'reason': expected one of cause, consequence, stopped"),
        ({"patterns": ["a", r"(b)\1"]}, "entry 1 (site-licence): patterns: several patterns, and one refers to a group by number: name"),
        ({"patterns": "x"}, "entry 1 (site-licence): patterns: expected a list of texts"),
        ({"survivable": "yes"}, "entry 1 (site-licence): survivable: expected true or false"),
        ({"remedy": ""}, "entry 1 (site-licence): remedy: expected a text"),
        ({"pattern": ["x"]}, "entry 1 (site-licence): unknown key 'pattern'"),
        (
            {"standing": "uncaught"},  # as one that is shipped has it, of any exception
            "entry 1 (site-licence): standing is 'uncaught': expected one of vague, wait, report, words, aftermath",
        ),
        (
            {"retry": "a\nranklaunch: all is well"},
            "entry 1 (site-licence): retry is 'a\\nranklaunch: all is well': expected one of no, yes, elsewhere\n",
        ),
        ({"retry": "x" * 9999}, f"entry 1 (site-licence): retry is '{'x' * 79}: expected"),
        ({"standing": ["vague"]}, "entry 1 (site-licence): standing is ['vague']: expected one of vague, "),
        ({"name": "a\nb", "remedy": ""}, "entry 1 (a; b): remedy: expected a text\n"),
        ({"a\nb": 1}, "entry 1 (site-licence): unknown key 'a\\nb'\n"),
        ({"patterns": ["(?\n)"]}, "entry 1 (site-licence): patterns: unknown extension ?; "),
        ({"patterns": ["no licence", "x?"]}, "entry 1 (site-licence): patterns: one of them matches the empty line"),
        ({"kind": "a\nb"}, "entry 1 (site-licence): kind is 'a; b': expected one of cause, consequence, stopped\n"),
    ],
)
def test_what_is_wrong_with_them_is_said_before_the_start(tmp_path: Path, changed: dict[str, object], said: str) -> None:
    folder = own(tmp_path, **changed)
    for command in (
        ("explain", "--known-errors", str(folder), str(log(tmp_path, "x"))),
        ("plan", "--known-errors", str(folder), "train.py"),
    ):
        refused = helpers.call(*command)
        assert refused.code == 78
        assert f"{folder}/site.json: {said}" in refused.err


@helpers.numbers_have_a_limit
def test_a_number_of_thousands_of_digits(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("9" * 5000)
    refused = helpers.call("explain", "--known-errors", str(tmp_path), str(log(tmp_path, "x")))
    assert (refused.code, f"{tmp_path}/x.json: a number in it has thousands of digits\n" in refused.err) == (78, True)


@pytest.mark.parametrize(
    ("content", "said"), [(b"[" * 100_000, "nested too deeply"), ("{}".encode("utf-16"), "not UTF-8 text: invalid start byte at byte 0")]
)
def test_known_errors_that_no_reader_takes(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "x.json").write_bytes(content)
    refused = helpers.call("explain", "--known-errors", str(tmp_path), str(log(tmp_path, "x")))
    assert (refused.code, f"{tmp_path}/x.json: {said}\n" in refused.err) == (78, True)


def test_a_byte_order_mark_is_no_part_of_them(tmp_path: Path) -> None:
    written = own(tmp_path) / "site.json"
    written.write_text(f"\ufeff{written.read_text()}", encoding="utf-8")
    said = helpers.call("explain", "--known-errors", str(written.parent), str(log(tmp_path, "no licence left for me")))
    assert "site-licence (cause)" in said.out


def test_a_url_in_place_of_their_folder_shows_no_password(tmp_path: Path) -> None:
    for command in (("explain", str(log(tmp_path, "x"))), ("plan", "train.py")):
        refused = helpers.call(command[0], "--known-errors", "https://u:hunter2@h/x", *command[1:])
        assert (refused.code, "expected a folder, not a URL" in refused.err, "hunter2" in refused.err) == (78, True, False)


def test_a_key_that_is_given_twice(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"family": "Site", "entry": [], "entry": [{}]}')
    refused = helpers.call("explain", "--known-errors", str(tmp_path), str(log(tmp_path, "x")))
    assert (refused.code, f"{tmp_path}/x.json: 'entry' is given twice in one map\n" in refused.err) == (78, True)


def test_their_words_do_not_move_the_cursor(tmp_path: Path) -> None:
    evil = "\x1b[2Jtwo\nlines"
    folder = own(tmp_path, name=f"site-{evil}", meaning=evil, remedy=evil, source=evil)
    written = folder / "site.json"
    written.write_text(written.read_text().replace('"Site"', json.dumps(evil)))
    shown = helpers.call("explain", "--known-errors", str(folder), str(log(tmp_path, "no licence left for me"))).out
    assert shown.count(r"\x1b[2Jtwo; lines") == 4
    assert "\x1b" not in shown + helpers.call("explain", "--known-errors", str(folder), "--find", "two").out


@pytest.mark.parametrize("text", ["", "[]", "{", '{"family": "x"}', '{"family": 1, "entry": []}', "[" * 100000])
def test_files_that_are_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    refused = helpers.call("explain", "--known-errors", str(tmp_path), str(log(tmp_path, "x")))
    assert refused.code == 78
    assert f"{tmp_path}/x.json: " in refused.err


@pytest.mark.one_python
@pytest.mark.skipif(sys.version_info < (3, 11), reason="this Python does not read TOML")
def test_a_key_of_very_many_parts_costs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    path.write_text('family = "Site"\n' + '"a" . b.' * 25_000 + "c = 1\n")
    refused = helpers.call("explain", "--known-errors", str(tmp_path), str(log(tmp_path, "x")))
    assert (refused.code, f"{path}: line 2: a key has more than 32 parts\n" in refused.err) == (78, True)
    fields = {**OWN["entry"][0], "patterns": [r"a\.b\.c .*\..*\.....x.y.z" * 5]}  # type: ignore[dict-item]
    path.write_text('family = "Site"\n[[entry]]\n' + "".join(f"{key} = {json.dumps(value)}\n" for key, value in fields.items()))
    assert helpers.call("explain", "--known-errors", str(tmp_path), str(log(tmp_path, "x"))).code == 1


@helpers.for_each(
    [
        ([""], 78, "ranklaunch: '': No such file or directory\n"),
        (["507054"], 78, "ranklaunch: 507054: No such file or directory; known errors with this word: ranklaunch explain --find 507054\n"),
        (["zebra"], 78, "ranklaunch: zebra: No such file or directory\n"),
        (["/no/such\nfile"], 78, "ranklaunch: /no/such; file: No such file or directory\n"),
        (["--find", "x", "f"], 2, "ranklaunch: 1 file given: expected no file beside --find\n"),
        ([], 2, "ranklaunch: 0 files given: expected one file, or - for standard input\n"),
        (["a", "b"], 2, "ranklaunch: 2 files given: expected one file, or - for standard input\n"),
    ]
)
def test_command_lines_without_a_log(words: list[str], code: int, said: str) -> None:
    refused = helpers.call("explain", *words)
    assert (refused.code, refused.out) == (code, "")
    assert refused.err.startswith(said)


def test_a_name_with_a_line_break_is_one_line(tmp_path: Path) -> None:
    path = log(tmp_path, OOM)
    path = path.rename(tmp_path / "a\nb\x1b[2J.log")
    shown = helpers.call("explain", str(path)).out
    assert shown.startswith(f"{tmp_path}/a; b\\x1b[2J.log:1: ")


@pytest.mark.one_python
def test_a_log_that_repeats_an_error_takes_no_long_time(tmp_path: Path) -> None:
    path = log(tmp_path, *(("Traceback (most recent call last):", '  File "x"', OOM) * 4000))
    began = time.thread_time()
    found = json.loads(helpers.call("explain", "--format", "json", str(path)).out)
    assert found["line_number"] == 12_000
    assert time.thread_time() - began < 5


def test_a_folder_without_any(tmp_path: Path) -> None:
    path = log(tmp_path, "x")
    for folder, said in {
        tmp_path: "no file in it ends with .json or .toml",
        path: "expected a folder",
        tmp_path / "none": "no such folder, or no permission to read it",
    }.items():
        refused = helpers.call("explain", "--known-errors", str(folder), str(path))
        assert refused.code == 78
        assert f"{folder}: {said}\n" in refused.err


def test_a_folder_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = log(tmp_path, "x")
    helpers.refuse(monkeypatch, tmp_path)
    refused = helpers.call("explain", "--known-errors", str(tmp_path), str(path))
    assert (refused.code, f"{tmp_path}: it is empty, or there is no permission to read it\n" in refused.err) == (78, True)


def test_of_very_many_lines_the_last_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer, "MOST_LINES", 3)
    path = log(tmp_path, OOM, "step 1\rstep 2", LOST)
    found = json.loads(helpers.call("explain", "--format", "json", str(path)).out)
    assert (found["name"], found["line_number"], found["others"]) == ("gloo-peer-connection-lost", None, [])
    assert found["skipped_bytes"] == len(f"{OOM}\nstep 1\r")


def test_what_a_shell_hands_over_is_read(tmp_path: Path) -> None:
    """As bash does for `ranklaunch explain <(kubectl logs POD)`."""
    readable, writable = os.pipe()
    os.write(writable, f"{OOM}\n".encode())
    os.close(writable)
    assert helpers.call("explain", f"/dev/fd/{readable}").out.startswith(f"/dev/fd/{readable}:1: {OOM}\n")
    os.close(readable)


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    packed = tmp_path / "rank_0.log.gz"
    packed.write_bytes(gzip.compress(OOM.encode()))
    found = helpers.call("explain", str(packed))
    assert (found.code, found.err) == (78, f"ranklaunch: {packed}: the file is compressed: zcat FILE | ranklaunch explain -\n")
    plain = tmp_path / "rank_1.log"
    plain.write_text(f"BZhao: started\n{OOM}\n")
    assert helpers.call("explain", str(plain)).code == 0
    found = helpers.call("explain", str(tmp_path))
    why = f"a folder, not a log: see `ranklaunch report {tmp_path}` for why its job failed"
    assert (found.code, found.err) == (78, f"ranklaunch: {tmp_path}: {why}\n")
