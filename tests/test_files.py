"""Paths in the container, and the disk behind them."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import helpers
import pytest

from ranklaunch.files import NoFiles, absolute, folder_of, join, which
from ranklaunch.system.disk import DiskFiles, make_folder


@pytest.mark.parametrize(
    ("folder", "name", "expected"),
    [("/a", "b", "/a/b"), ("/a/", "b", "/a/b"), ("/", "b", "/b"), ("", "b", "b"), ("a", "b/c", "a/b/c")],
)
def test_join(folder: str, name: str, expected: str) -> None:
    assert join(folder, name) == expected


@helpers.for_each([
        ("/a", "/a"), ("a", "/w/a"), ("./a", "/w/a"), (".//a", "/w/a"), ("../a", "/a"), ("a/./b", "/w/a/b"), (".", "/w"), ("/a/", "/a"),
        ("/", "/"), ("../../..", "/"),
    ])  # fmt: skip
def test_absolute(path: str, expected: str) -> None:
    assert absolute(path, "/w") == expected


@pytest.mark.parametrize(("path", "expected"), [("/a/b", "/a"), ("/a", "/"), ("a/b", "a"), ("a", ""), ("/", "/"), ("", "")])
def test_folder_of(path: str, expected: str) -> None:
    assert folder_of(path) == expected


@pytest.mark.parametrize(
    ("search", "expected"),
    [("/a:/b", "/a/x"), ("/b:/a", "/b/x"), ("", None), ("/c", None), (":/c::", None), ("relative:/b", "/b/x"), ("/b/", "/b/x")],
)
def test_which(search: str, expected: str | None) -> None:
    files = helpers.MemoryFiles({"/a/x": "", "/b/x": "", "x": "", "relative/x": ""})
    assert which("x", search, files) == expected


def test_no_files() -> None:
    files = NoFiles()
    assert (files.text("/a", 9), files.exists("/a"), files.is_dir("/"), files.names("/"), files.real("/a")) == (
        None,
        False,
        False,
        (),
        "/a",
    )


@pytest.fixture
def disk(tmp_path: Path) -> DiskFiles:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "b").write_bytes("text é\r\n".encode())
    (tmp_path / "folder" / "a").write_text("", encoding="utf-8")
    return DiskFiles(str(tmp_path))


def test_below_a_root(disk: DiskFiles) -> None:
    assert disk.text("/folder/b", 100) == "text é\r\n"
    assert disk.text("/folder/a", 0) == ""
    assert disk.exists("/folder")
    assert disk.exists("/folder/a")
    assert disk.is_dir("/folder")
    assert not disk.is_dir("/folder/a")
    assert disk.names("/folder") == ("a", "b")
    assert disk.names("/") == ("folder",)
    assert disk.real("/folder") == f"{disk.root}/folder"
    assert disk.real("relative") == "relative"


@pytest.mark.parametrize("path", ["/none", "/folder/none", "/folder/a/under-a-file", "/nul\0", "", "/" + "x" * 5000, "/\udcff"])
def test_what_is_not_there_raises_nothing(disk: DiskFiles, path: str) -> None:
    assert disk.text(path, 9) is None or path == ""
    assert not disk.exists(path)
    assert not disk.is_dir(path)
    assert disk.names(path) == ()


def test_what_is_no_text_is_refused(disk: DiskFiles) -> None:
    root = Path(disk.root)
    (root / "latin").write_bytes(b"caf\xe9")
    os.mkfifo(root / "fifo")
    with pytest.raises(ValueError, match="decode"):
        disk.text("/latin", 100)
    (root / "long").write_text("x" * 8, encoding="utf-8")
    with pytest.raises(ValueError, match="8 bytes, more than the limit of 7"):
        disk.text("/long", 7)
    with pytest.raises(ValueError, match="not a regular file"):
        disk.text("/fifo", 100)


def test_a_folder_in_place_of_a_file(disk: DiskFiles) -> None:
    with pytest.raises(ValueError, match="not a regular file"):
        disk.text("/folder", 100)


@pytest.mark.parametrize("root", ["", "/"])
def test_without_a_root(root: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("y", encoding="utf-8")
    assert DiskFiles(root).text(str(tmp_path / "x"), 9) == "y"


def test_a_byte_order_mark_is_no_part_of_a_text(tmp_path: Path) -> None:
    path = tmp_path / "accelerate.yaml"
    path.write_text("\ufeffcompute_environment: \ufeff", encoding="utf-8")
    assert DiskFiles().text(str(path), 99) == "compute_environment: \ufeff"


def test_a_folder_below_more_than_python_goes_down(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="File name too long"):
        make_folder(f"{tmp_path}/{'a/' * 3000}")


def test_what_the_kernel_tells_is_read_however_much_may_be(tmp_path: Path) -> None:
    """It gives a file of /proc/sys to nobody who asks for many MiB at once."""
    assert DiskFiles().text("/proc/sys/kernel/hostname", 1 << 24) == f"{socket.gethostname()}\n"
    path = tmp_path / "large"
    path.write_text("x" * (3 << 20))
    assert DiskFiles().text(str(path), 1 << 24) == "x" * (3 << 20)
