"""The shipped templates are there to be copied from."""

from __future__ import annotations

from pathlib import Path

import helpers

from ranklaunch.render.templates import SHIPPED


def test_the_names_of_all_and_each_text() -> None:
    names = helpers.call("template").out.splitlines()
    assert names == sorted(str(path.relative_to(SHIPPED)) for path in Path(SHIPPED).rglob("*.j2"))
    assert all(helpers.call("template", name).out == Path(SHIPPED, name).read_text() for name in names)


def test_short_names() -> None:
    found = {helpers.call("template", name).out for name in ("torchrun", "torchrun/command", "shipped/torchrun/command.j2")}
    assert found == {Path(SHIPPED, "torchrun/command.j2").read_text()}


def test_unknown_names() -> None:
    found = helpers.call("template", "torchrun/comand.j2")
    assert (found.code, found.out) == (2, "")
    assert "did you mean 'torchrun/command.j2'?" in found.err
    assert helpers.call("template", "a", "b").code == 2
    assert helpers.call("template", "../files.py").code == 2
