"""What is known of a log, also without a job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import helpers
import pytest

from ranklaunch.entrypoints import explain

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


def test_as_json(tmp_path: Path) -> None:
    found = json.loads(helpers.call("explain", "--format", "json", str(log(tmp_path, LOST, OOM))).out)
    assert (found["schema"], found["skipped_bytes"]) == ("ranklaunch.explain/1", 0)
    assert (found["name"], found["kind"], found["line"], found["line_number"]) == ("cuda-out-of-memory", "cause", OOM, 2)
    assert found.keys() >= {"meaning", "remedy", "retry", "source"}
    assert [other["name"] for other in found["others"]] == ["gloo-peer-connection-lost"]


def test_nothing_known(tmp_path: Path) -> None:
    said = helpers.call("explain", str(log(tmp_path, "step 1")))
    assert (said.code, said.out) == (1, f"{tmp_path / 'rank_0.log'}: nothing in it is known\n")
    found = helpers.call("explain", "--format=json", str(log(tmp_path)))
    assert (found.code, json.loads(found.out)["kind"]) == (1, "unknown")


@pytest.mark.one_python
def test_of_a_long_log_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain, "MOST_BYTES", 65536)
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
    for path, what in ((tmp_path / "none", "No such file or directory"), (tmp_path, "a folder is there")):
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


def test_a_pattern_that_takes_for_ever_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain, "MOST_CPU_S", 0.5)
    folder = own(tmp_path, patterns=["(a+)+b"])
    said = helpers.call("explain", "--known-errors", str(folder), str(log(tmp_path, "a" * 200)))
    assert (said.code, said.out) == (78, "")
    assert f"{folder}: its patterns take more than 0.5 s for this log" in said.err


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"patterns": ["("]}, "entry 1 (site-licence): patterns: missing ), unterminated subpattern"),
        ({"kind": "reason"}, "entry 1 (site-licence): kind is reason: expected one of cause, consequence, stopped"),
        (
            {"through": {"ending": "(", "frames": ["f.py"], "unless": "y"}},
            "entry 1 (site-licence): through: ending: missing ), unterminated subpattern",
        ),
        ({"patterns": ["a", r"(b)\1"]}, "entry 1 (site-licence): patterns: a group's number, where there are several: name it"),
        ({"patterns": "x"}, "entry 1 (site-licence): patterns: expected a list of texts"),
        ({"remedy": ""}, "entry 1 (site-licence): remedy: expected a text"),
        ({"pattern": ["x"]}, "entry 1 (site-licence): unknown key pattern"),
        (
            {"standing": "best"},
            "entry 1 (site-licence): standing is best: expected one of vague, wait, report, words, uncaught, last, faint, aftermath",
        ),
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


@pytest.mark.parametrize("text", ["", "[]", "{", '{"family": "x"}', '{"family": 1, "entry": []}', "[" * 100000])
def test_files_that_are_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    refused = helpers.call("explain", "--known-errors", str(tmp_path), str(log(tmp_path, "x")))
    assert refused.code == 78
    assert f"{tmp_path}/x.json: " in refused.err


def test_a_folder_without_any(tmp_path: Path) -> None:
    refused = helpers.call("explain", "--known-errors", str(tmp_path), str(log(tmp_path, "x")))
    assert refused.code == 78
    assert "no file there ends with .json or .toml" in refused.err


def test_of_very_many_lines_the_last_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain, "MOST_LINES", 3)
    path = log(tmp_path, OOM, "step 1\rstep 2", LOST)
    found = json.loads(helpers.call("explain", "--format", "json", str(path)).out)
    assert (found["name"], found["line_number"], found["others"]) == ("gloo-peer-connection-lost", None, [])
    assert found["skipped_bytes"] == len(f"{OOM}\nstep 1\r")
