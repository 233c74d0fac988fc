from __future__ import annotations

from pathlib import Path

import pytest
from left_behind import LeftBehind


@pytest.fixture
def left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LeftBehind:
    return LeftBehind(tmp_path / "logs", monkeypatch)
