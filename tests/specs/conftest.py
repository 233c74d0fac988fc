"""What judges specifications is an extra of its own; where it is not installed, the tests that need it say so."""

from __future__ import annotations

import pytest

JUDGES = ("yaml", "kubernetes_validate", "jsonschema", "celpy", "huaweicloudsdkcore", "huaweicloudsdkmodelarts")


@pytest.fixture(autouse=True)
def judges(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("specs"):
        for name in JUDGES:
            pytest.importorskip(name, reason=f"{name} is not installed: make test-charts installs it")
