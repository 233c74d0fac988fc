"""examples/charts: one base, and an overlay for each engine, as docs/kubernetes.md has them."""

from __future__ import annotations

import helpers
import pytest

from ranklaunch.specs.model import OF_KUBERNETES
from testbench.judges.charts import RELEASE, RUN, every_helm, helm, load, parse
from testbench.judges.schemas import folder, is_core, misfits_of_core, misfits_of_custom, pod_templates

FILES = helpers.ROOT / "examples" / "charts"
BASE = FILES / "base.yaml"
PAGE = (helpers.ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
QUEUED = {"job": "kueueQueue", "jobset": "kueueQueue"}  # the others have a queue of their scheduler


def test_every_engine_has_an_overlay() -> None:
    assert {path.stem for path in FILES.iterdir()} == {"base", *OF_KUBERNETES}
    for engine in OF_KUBERNETES:
        values = load(FILES / f"{engine}.yaml")
        assert values["engine"] == engine
        assert values["scheduling"] == {QUEUED.get(engine, "queue"): "research"}
        assert f"| {engine}.yaml | {engine} | `scheduling.{QUEUED.get(engine, 'queue')}`" in PAGE
    assert "engine" not in load(BASE)


@every_helm
@pytest.mark.parametrize("engine", OF_KUBERNETES)
def test_base_and_overlay_render_for_every_engine(major: str, engine: str) -> None:
    done = helm(major, "template", RELEASE, RUN, "--values", BASE, "--values", FILES / f"{engine}.yaml")
    assert done.returncode == 0, done.stderr
    objects = parse(done.stdout)
    assert [misfit for each in objects for misfit in misfits_of_core(each)] == []
    if folder():
        assert [misfit for each in objects if not is_core(each) for misfit in misfits_of_custom(each)] == []
    for pod in pod_templates([each for each in objects if each["kind"] != "Pod"]):
        env = {each["name"]: each.get("value") for each in pod["spec"]["containers"][0]["env"]}
        assert (env["RANKLAUNCH_MAX_RESTARTS"], env["RANKLAUNCH_LOG_DIR"]) == ("2", "/data/logs/demo")
    assert "research" in done.stdout


@pytest.mark.parametrize("engine", OF_KUBERNETES)
def test_spec_merges_the_same_files(engine: str) -> None:
    words = ["--values", str(BASE), "--values", str(FILES / f"{engine}.yaml")]
    found = helpers.call("spec", engine, "--name", RELEASE, *words)
    assert found.code == 0, found.err
    done = helm("4", "template", RELEASE, RUN, *words)
    chart = [each for each in parse(done.stdout) if each["kind"] != "Pod"]
    pods = [list(pod_templates(objects)) for objects in (chart, parse(found.out))]
    assert pods[0] == pods[1] != []
