"""Values in files: they mean themselves, or are refused."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import helpers
import pytest

from ranklaunch.errors import ConfigError
from ranklaunch.render import quoting
from ranklaunch.render.templates import Templates


@pytest.mark.parametrize("value", ["h0", "10.0.0.1", "a-b.c_d", "fe80::1%eth0", 8])
def test_hosts_and_numbers_stand_in_a_hostfile(value: object) -> None:
    assert quoting.hostfile(value) == str(value)


@pytest.mark.parametrize("value", ["", "a b", "a\nb slots=9", "a;b", "a#b", "h0 slots=2"])
def test_nothing_else_does(value: str) -> None:
    with pytest.raises(ValueError, match="is not allowed in a hostfile"):
        quoting.hostfile(value)


@pytest.mark.parametrize(
    ("value", "text"), [("/tmp/a", "/tmp/a"), ("/tmp/a b", '"/tmp/a b"'), ("a#b", '"a#b"'), ("", '""'), (36666, "36666")]
)
def test_arguments_of_openssh(value: object, text: str) -> None:
    assert quoting.sshd(value) == text


@pytest.mark.parametrize("value", ['a"b', "a'b", "a\nPermitRootLogin yes", "%h", "${HOME}", "a\\b", "a\0b"])
def test_openssh_has_no_way_to_say_these(value: str) -> None:
    with pytest.raises(ValueError, match="is not allowed in OpenSSH"):
        quoting.sshd(value)


@helpers.for_each(helpers.HOSTILE)
def test_json_says_everything(value: str) -> None:
    assert json.loads(quoting.as_json({"a": value})) == {"a": value}


def test_a_value_without_a_filter_is_refused(tmp_path: Path) -> None:
    (tmp_path / "own.j2").write_text("Port {{ port }}\n", encoding="utf-8")
    with pytest.raises(
        ConfigError, match=r"own\.j2, line 1: '36666' would be written to a file unquoted: pass it through one of the filters hostfile, "
    ):
        Templates([str(tmp_path)]).text("own.j2", port=36666)


def test_a_value_that_cannot_be_said_names_the_line(tmp_path: Path) -> None:
    (tmp_path / "own.j2").write_text("# first\n{{ host | hostfile }}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"own\.j2, line 2: 'a b' is not allowed in a hostfile"):
        Templates([str(tmp_path)]).text("own.j2", host="a b")


@pytest.mark.processes
def test_openssh_reads_what_is_quoted(tmp_path: Path) -> None:
    config = tmp_path / "config"
    folder = "/tmp/two  words#no comment"
    config.write_text(f"Host *\n  IdentityFile {quoting.sshd(folder)}\n", encoding="utf-8")
    try:
        done = subprocess.run(["ssh", "-G", "-F", str(config), "h0"], capture_output=True, text=True, timeout=60, check=True)
    except FileNotFoundError:
        pytest.skip("ssh is not installed")
    assert f"identityfile {folder}\n" in done.stdout
