"""The values and objects that the pages show are right."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from helpers import ROOT

from testbench.judges.charts import CHARTS, RUN, every_helm, helm, parse
from testbench.judges.schemas import folder, misfits_of_custom

PAGES = (ROOT / "docs" / "kubernetes.md", CHARTS / "ranklaunch" / "README.md", CHARTS / "ranklaunch-runtimes" / "README.md")
BLOCK = re.compile(r"^```yaml\n(.*?)^```$", re.DOTALL | re.MULTILINE)
BLOCKS = [
    (f"{page.parent.name}/{page.name} {number}", text)
    for page in PAGES
    for number, text in enumerate(BLOCK.findall(page.read_text(encoding="utf-8")))
]
SHOWN = [pytest.param(text, id=name) for name, text in BLOCKS if "engine:" in text]
OBJECTS = [pytest.param(text, id=name) for name, text in BLOCKS if "kind:" in text and "apiVersion:" in text]


@every_helm
@pytest.mark.parametrize("text", SHOWN)
def test_values_render(major: str, text: str, tmp_path: Path) -> None:
    values = tmp_path / "run.yaml"
    values.write_text(text, encoding="utf-8")
    done = helm(major, "template", "demo", RUN, "--values", values)
    assert done.returncode == 0, done.stderr
    assert parse(done.stdout)


if folder():

    @pytest.mark.parametrize("text", OBJECTS)
    def test_objects_fit_their_definitions(text: str) -> None:
        assert [misfit for each in parse(text) for misfit in misfits_of_custom(each)] == []


def test_every_page_shows_something() -> None:
    assert len(SHOWN) >= 4
    assert OBJECTS
