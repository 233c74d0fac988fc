"""What others run in place of `.ci/run` does the same. That it is well made is for actionlint and zizmor to say (`make lint`)."""

from __future__ import annotations

import re

import helpers

WORKFLOW = (helpers.ROOT / ".github" / "workflows" / "checks.yml").read_text(encoding="utf-8")
HOOKS = (helpers.ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
MAKEFILE = (helpers.ROOT / "Makefile").read_text(encoding="utf-8")


def test_workflow_has_every_python_that_is_tested() -> None:
    (minors,) = re.findall(r"^MINORS := (.*)$", MAKEFILE, re.MULTILINE)
    (versions,) = re.findall(r"^ +python: \[(.*)\]$", WORKFLOW, re.MULTILINE)
    assert re.findall(r'"3\.([0-9]+)"', versions) == minors.split(), "MINORS of Makefile and the matrix of checks.yml differ"


def test_what_the_workflow_makes_is_there() -> None:
    made = re.findall(r'- run: .*\bmake "?([a-z-]+)', WORKFLOW)
    targets = re.findall(r"^([a-z-]+)[0-9.%]*:", MAKEFILE, re.MULTILINE)
    assert {"lint", "test"} <= set(made) <= set(targets), "the workflow makes what Makefile does not know"


def test_hooks_are_the_steps_of_make_lint() -> None:
    recipe = MAKEFILE.partition("\nlint:")[2].partition("\n\n")[0]
    steps = re.findall(r"^\t(?:\$\(VENV\)/)?((?:ruff )?[a-z]+)", recipe, re.MULTILINE)
    hooks = re.findall(r"^ +entry: (?:\.venv/bin/)?((?:ruff )?[a-z]+)", HOOKS, re.MULTILINE)
    assert hooks == steps, "lint of Makefile and .pre-commit-config.yaml differ"
