"""What others run in place of `.ci/run` does the same. That it is well made is for actionlint and zizmor to say (`make lint`)."""

from __future__ import annotations

import re

import helpers

WORKFLOW, RELEASE = ((helpers.ROOT / ".github" / "workflows" / name).read_text(encoding="utf-8") for name in ("checks.yml", "release.yml"))
HOOKS = (helpers.ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
MAKEFILE = (helpers.ROOT / "Makefile").read_text(encoding="utf-8")


def test_workflow_has_every_python_that_is_tested() -> None:
    (minors,) = re.findall(r"^MINORS := (.*)$", MAKEFILE, re.MULTILINE)
    (versions,) = re.findall(r"^ +python: \[(.*)\]$", WORKFLOW, re.MULTILINE)
    assert re.findall(r'"3\.([0-9]+)"', versions) == minors.split(), "MINORS of Makefile and the matrix of checks.yml differ"


def test_what_the_workflow_makes_is_there() -> None:
    made = re.findall(r'- run: .*\bmake "?([a-z-]+)', WORKFLOW + RELEASE)
    targets = re.findall(r"^([a-z-]+)[0-9.%]*:", MAKEFILE, re.MULTILINE)
    assert {"lint", "test", "dist"} <= set(made) <= set(targets), "the workflow makes what Makefile does not know"


def test_hooks_are_the_steps_of_make_lint() -> None:
    recipe = MAKEFILE.partition("\nlint:")[2].partition("\n\n")[0]
    steps = re.findall(r"^\t(?:\$\(VENV\)/)?((?:ruff )?[a-z]+)", recipe, re.MULTILINE)
    hooks = re.findall(r"^ +entry: (?:\.venv/bin/)?((?:ruff )?[a-z]+)", HOOKS, re.MULTILINE)
    assert hooks == steps, "lint of Makefile and .pre-commit-config.yaml differ"


def test_actions_are_pinned_by_commit_and_the_same_everywhere() -> None:
    used = re.findall(r"^ +(?:- )?uses: (.*)$", WORKFLOW + RELEASE, re.MULTILINE)
    pins = {re.fullmatch(r"([\w/-]+)@[0-9a-f]{40} # v[0-9]+\.[0-9]+\.[0-9]+", each) for each in set(used)}
    assert None not in pins, f"each needs @COMMIT # vVERSION: {sorted(set(used))}"
    names = [pin[1] for pin in pins if pin]
    assert len(set(names)) == len(names), f"one action, several versions: {sorted(set(used))}"


# Permissions of each job. The two that publish to PyPI or sign run no code of the repository.
MAY = {
    "build": {"contents: read"},
    "attest": {"attestations: write", "id-token: write"},
    "pypi": {"id-token: write"},
    "release": {"contents: write"},
    "images": {"contents: read", "packages: write"},
    "image-names": {"packages: write"},
    "charts": {"contents: read", "packages: write"},
}


def test_jobs_of_a_release_may_do_what_they_need() -> None:
    head, *jobs = re.split(r"^  ([a-z-]+):\n", RELEASE.partition("\njobs:\n")[2], flags=re.MULTILINE)
    assert head == ""
    bodies = dict(zip(jobs[::2], jobs[1::2]))
    blocks = {name: re.findall(r"^    permissions:\n((?:      .*\n)+)", body, re.MULTILINE) for name, body in bodies.items()}
    granted = {name: set(re.findall(r"^      ([a-z-]+: [a-z]+)", "".join(block), re.MULTILINE)) for name, block in blocks.items()}
    assert granted == MAY
    assert "\npermissions: {}\n" in RELEASE.partition("\njobs:\n")[0]
    assert [name for name in bodies if "id-token: write" in granted[name] and "checkout" in bodies[name]] == []
    assert "secrets." not in RELEASE  # trusted publishing; github.token does the rest
    assert [name for name, body in bodies.items() if "\n      name: pypi\n" in body] == ["pypi"]
    assert re.search(r'^on:\n  push:\n    tags: \["v\*"\]\n\n', RELEASE, re.MULTILINE)


def test_a_release_has_an_image_of_every_dockerfile_but_the_one_for_ascend() -> None:
    (images,) = re.findall(r"^ +image: \[(.*)\]$", RELEASE, re.MULTILINE)
    names = {path.name.partition(".")[0] for path in (helpers.ROOT / "containers").glob("*.Dockerfile")}
    assert set(images.split(", ")) == names - {"ascend"}
    (named,) = re.findall(r"for each in (.*); do\n +image=", RELEASE)
    assert named.split() == images.split(", ")
