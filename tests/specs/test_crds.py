"""tools/crds.py: the definitions of the engines' resources, by one command."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler
from pathlib import Path

import helpers
import pytest

from testbench import places
from testbench.judges.charts import parse
from testbench.serving import serving

CRD = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  name: {name}\nspec: {{}}\n"
DEPLOYMENT = "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: operator\nspec: {}\n"
MISSING = "kubernetes-sigs/jobset"


class GitHub(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        name = Path(self.path).stem
        self.wfile.write(f"---\n{DEPLOYMENT}---\n{CRD.format(name=name)}".encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


class WithoutJobSet(GitHub):
    def do_GET(self) -> None:
        if MISSING in self.path:
            self.send_error(404)
        else:
            super().do_GET()


def test_definitions_alone_are_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tool = places.module("tools/crds.py")
    with serving(GitHub) as server:
        assert tool.main(["--from", f"http://127.0.0.1:{server.server_port}/", str(tmp_path / "crds")]) == 0
    assert capsys.readouterr().out == f"8 of 8 definitions are in {tmp_path / 'crds'}\n"
    assert {path.name.removesuffix(".yaml") for path in (tmp_path / "crds").iterdir()} == set(tool.PLACES)
    for path in (tmp_path / "crds").iterdir():
        assert [each["kind"] for each in parse(path.read_text(encoding="utf-8"))] == ["CustomResourceDefinition"]


def test_what_cannot_be_fetched_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tool = places.module("tools/crds.py")
    with serving(WithoutJobSet) as server:
        assert tool.main(["--from", f"http://127.0.0.1:{server.server_port}", str(tmp_path)]) == 1
    said = capsys.readouterr()
    assert MISSING in said.err
    assert said.out.startswith("7 of 8 definitions")


def test_make_says_how_to_get_them(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    tool = places.module("tools/crds.py")
    for known, hint in ((Path("/crds"), ""), (None, tool.HINT)):
        monkeypatch.setattr(tool.schemas, "folder", lambda known=known: known)
        assert tool.main(["--hint"]) == 0
        assert capsys.readouterr().err == hint
    assert "tools/crds.py --hint" in (helpers.ROOT / "Makefile").read_text(encoding="utf-8")
    assert ".venv/bin/python tools/crds.py\n" in tool.HINT
