"""charts/ranklaunch with Helm 3 and 4: what it renders is whole, the same each time, and fits the engines' schemas."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from helpers import ROOT

from ranklaunch import __version__
from testbench.judges import linter
from testbench.judges.charts import (
    CASES,
    CHARTS,
    HELMS,
    RUN,
    Object,
    case,
    case_id,
    every_case,
    every_helm,
    helm,
    load,
    of_kind,
    parse,
    rendered,
    rendered_with,
)
from testbench.judges.schemas import OLDEST, folder, is_core, misfits_of_core, misfits_of_custom, pod_templates

ENGINES = ("volcano", "jobset", "job", "trainjob", "mpijob", "acjob")
KINDS = {
    "volcano": {"Job"},
    "jobset": {"JobSet"},
    "job": {"Job", "Service"},
    "trainjob": {"TrainJob"},
    "mpijob": {"MPIJob"},
    "acjob": {"AscendJob"},
}


def test_every_engine_has_a_case() -> None:
    named = {tuple(case_id(path).split("-")) for path in CASES}
    assert {name[0] for name in named} == set(ENGINES)
    assert len(named) >= 12


@every_case
def test_names_of_cases_are_true(values: Path) -> None:
    engine, mode, device = case_id(values).split("-")
    found = load(values)
    assert (found["engine"], found.get("mode", "auto"), found.get("device", {}).get("kind", "gpu")) == (engine, mode, device)


@every_helm
@every_case
def test_lint(major: str, values: Path) -> None:
    done = helm(major, "lint", "--strict", RUN, "--values", values)
    assert done.returncode == 0, done.stdout + done.stderr


@every_helm
@every_case
def test_two_renderings_are_the_same(major: str, values: Path) -> None:
    again = helm(major, "template", "demo", RUN, "--namespace", "team", "--values", values)
    assert again.stdout == rendered(major, values)


@every_case
def test_both_helms_render_the_same_objects(values: Path) -> None:
    texts = [rendered(major, values) for major in HELMS]
    assert parse(texts[0]) == parse(texts[1])


@every_case
def test_objects_are_those_of_the_engine(values: Path) -> None:
    found = load(values)
    objects = parse(rendered("4", values))
    wanted = set(KINDS[found["engine"]])
    if found["engine"] == "trainjob" and not found.get("trainer"):
        wanted.add("TrainingRuntime")
    if found.get("rankTable", {}).get("source") == "ascend-operator":
        wanted.add("ConfigMap")
    beside = {"NetworkPolicy": found.get("networkPolicy", {}).get("enabled"), "PodMonitor": found.get("metrics", {}).get("podMonitor")}
    wanted |= {kind for kind, is_asked in beside.items() if is_asked}
    assert {each["kind"] for each in objects} - {"Pod"} == wanted
    assert {each["metadata"]["name"] for each in objects if each["kind"] not in {"ConfigMap", "Pod", "NetworkPolicy"}} == {"demo"}


@every_case
def test_objects_and_pods_fit_kubernetes(values: Path) -> None:
    assert [misfit for each in parse(rendered("4", values)) for misfit in misfits_of_core(each)] == []


if folder() or not os.environ.get("CI"):  # they are no part of the repository

    @every_case
    def test_custom_resources_fit_their_definitions(values: Path) -> None:
        if not folder():
            pytest.skip("there are no CustomResourceDefinitions beside the repository, and SPEC_CRDS names no folder with them")
        assert [misfit for each in parse(rendered("4", values)) if not is_core(each) for misfit in misfits_of_custom(each)] == []


@every_case
def test_nothing_is_wrong_that_only_controllers_see(values: Path) -> None:
    assert linter.lint(parse(rendered("4", values))) == []


@every_helm
def test_package(major: str, tmp_path: Path) -> None:
    done = helm(major, "package", RUN, "--destination", tmp_path)
    assert done.returncode == 0, done.stderr
    (archive,) = tmp_path.glob("ranklaunch-*.tgz")
    again = helm(major, "template", "demo", archive, "--namespace", "team", "--values", CASES[0])
    assert parse(again.stdout) == parse(rendered(major, CASES[0]))


@every_helm
def test_old_kubernetes_is_refused(major: str) -> None:
    command = ("template", "demo", RUN, "--values", CASES[0], "--kube-version")
    before, oldest = helm(major, *command, "1.28.0"), helm(major, *command, f"{OLDEST}.0")
    assert before.returncode
    assert OLDEST in before.stderr
    assert oldest.returncode == 0, oldest.stderr


def test_charts_and_page_allow_the_same_kubernetes() -> None:
    assert {load(chart)["kubeVersion"] for chart in CHARTS.glob("*/Chart.yaml")} == {f">={OLDEST}.0-0"}
    assert f"Kubernetes {OLDEST} or newer" in (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")


@every_helm
def test_charts_are_packaged_as_a_release_does(major: str, tmp_path: Path) -> None:
    done = helm(major, "package", *sorted(path.parent for path in CHARTS.glob("*/Chart.yaml")), "--destination", tmp_path)
    assert done.returncode == 0, done.stderr
    made = {f"{name}-{__version__}.tgz" for name in ("ranklaunch", "ranklaunch-runtimes")}
    assert {path.name for path in tmp_path.iterdir()} == made


@pytest.mark.parametrize("suffix", ["", "revision"])
def test_an_upgrade_is_a_new_run_where_that_is_asked_for(suffix: str) -> None:
    text = rendered("4", case("job-torchrun-gpu"), RUN, "--is-upgrade", "--set", f"nameSuffix={suffix}")
    name = of_kind(parse(text), "Job")["metadata"]["name"]
    assert name == ("demo-r1" if suffix else "demo")


@every_helm
def test_names_are_texts_whatever_yaml_makes_of_them(major: str) -> None:
    for name in ("null", "yes", "on", "y", "true"):
        done = helm(major, "template", name, RUN, "--values", case("job-plain-cpu"))
        assert done.returncode == 0, done.stderr
        objects = parse(done.stdout)
        assert [each["metadata"]["name"] for each in objects] == [name, name, f"{name}-check"]
        for each in objects:
            assert all(isinstance(text, str) for text in each["metadata"]["labels"].values())


@every_case
def test_notes_have_the_next_commands(values: Path) -> None:
    """Helm 4 alone shows them without a cluster."""
    done = helm("4", "install", "demo", RUN, "--namespace", "team", "--values", values, "--dry-run=client")
    assert done.returncode == 0, done.stderr
    notes = done.stdout.partition("\nNOTES:\n")[2]
    objects = parse(rendered("4", values))
    (job,) = [each for each in objects if each["kind"] in {"Job", "JobSet", "TrainJob", "MPIJob", "AscendJob"}]
    group = job["apiVersion"].partition("/")[0]
    plural = f"{job['kind'].lower()}s.{group}"
    commands = [line.strip() for line in notes.splitlines() if line.startswith("  ")]
    assert all(line.startswith(("kubectl -n team ", "helm -n team ", "POD=$(kubectl -n team ")) for line in commands)
    container = next(pod_templates(objects))["spec"]["containers"][0]["name"] if list(pod_templates(objects)) else "node"
    assert f"kubectl -n team exec $POD -c {container} -- ranklaunch status" in commands
    assert {f"kubectl -n team get {plural} demo", f"kubectl -n team describe {plural} demo", "helm -n team uninstall demo"} <= set(commands)
    assert all("--tail=-1" in line for line in commands if " logs " in line and " -l " in line)  # which alone shows but ten lines
    tested = [each["metadata"]["name"] for each in objects if each["kind"] == "Pod"]
    assert [line for line in commands if " delete " in line] == [f"kubectl -n team delete pod {name}" for name in tested]


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("jobset-torchrun-gpu", (), True),
        ("trainjob-torchrun-gpu", (), True),
        ("volcano-torchrun-gpu", (), False),
        ("jobset-torchrun-gpu", ("restart.onEviction=fail",), False),
        ("jobset-torchrun-gpu", ("restart.noRetryExitCodes={143}",), False),
    ],
)
def test_notes_say_where_an_eviction_is_not_counted(name: str, changes: tuple[str, ...], said: bool) -> None:
    words = [word for change in changes for word in ("--set", change)]
    done = helm("4", "install", "demo", RUN, "--values", case(name), *words, "--dry-run=client")
    assert done.returncode == 0, done.stderr
    assert " at most" in done.stdout
    assert ("(a pod that the cluster takes away is not counted)" in done.stdout) is said


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        (
            "volcano-torchrun-gpu",
            ["restart.maxRestarts=3"],
            "not restarted after exit code 2, 69, 76, 78; after any other it is, 3 times at most.",
        ),
        ("volcano-torchrun-gpu", ["restart.maxRestarts=1", "restart.noRetryExitCodes=[]"], "is restarted after a failure, 1 time at most."),
        ("jobset-torchrun-gpu", ["restart.maxRestarts=3"], "it is, 3 times at most (a pod that the cluster takes away is not counted)."),
        ("acjob-msrun-npu", ["restart.maxRestarts=3"], "is restarted only after exit codes from 128, 3 times at most."),
        ("acjob-msrun-npu", ["restart.maxRestarts=0"], ""),
    ],
)
def test_notes_say_when_it_starts_anew(name: str, options: list[str], said: str) -> None:
    words = [word for option in options for word in ("--set-json", option)]
    done = helm("4", "install", "demo", RUN, "--values", case(name), *words, "--dry-run=client")
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.partition("\nNOTES:\n")[2].splitlines() if "The whole job is" in line]
    assert [line for line in lines if said and line.endswith(said)] == lines
    assert bool(lines) == bool(said)


def test_notes_warn_of_restarts_in_place_beside_those_of_the_engine() -> None:
    words = ("--set", "restart.maxRestarts=2", "--set-string", "env.RANKLAUNCH_MAX_RESTARTS=3")
    done = helm("4", "install", "demo", RUN, "--values", case("volcano-torchrun-gpu"), *words, "--dry-run=client")
    assert "RANKLAUNCH_MAX_RESTARTS=3 and restart.maxRestarts=2: a permanent failure is tried 4 times in each of 3 starts" in done.stdout


@every_case
def test_pods_are_secure(values: Path) -> None:
    found = load(values).get("security", {})
    for pod in pod_templates(parse(rendered("4", values))):
        assert pod["spec"]["automountServiceAccountToken"] is False
        assert pod["spec"]["securityContext"]["runAsUser"] == found.get("runAsUser", 1000)
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is (found.get("runAsUser", 1000) > 0)
        assert pod["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        (container,) = pod["spec"]["containers"]
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]


@pytest.mark.parametrize("engine", [engine for engine in ENGINES if engine != "acjob"])
def test_a_pod_ends_with_its_program_whatever_runs_beside_it(engine: str, tmp_path: Path) -> None:
    """An engine waits for the end of each pod: a container that stays is one which the pod does not wait for."""
    values = next(path for path in CASES if load(path)["engine"] == engine and not load(path).get("trainer"))
    given = {"initContainers": [{"name": "fetch", "image": "i"}], "extraContainers": [{"name": "logs", "image": "i"}]}
    pods = list(pod_templates(parse(rendered_with("4", tmp_path, values, given).stdout)))
    assert pods
    for pod in pods:
        assert len(pod["spec"]["containers"]) == 1
        assert [(each["name"], each.get("restartPolicy")) for each in pod["spec"]["initContainers"]] == [
            ("fetch", None),
            ("logs", "Always"),
        ]


@every_case
def test_helm_test_checks_the_program_without_devices(values: Path) -> None:
    found = load(values)
    pods = [each for each in parse(rendered("4", values)) if each["kind"] == "Pod"]
    if found.get("trainer"):  # the pod is the runtime's
        assert pods == []
        return
    ((pod,), program) = pods, [found["script"]] if "script" in found else ["-m", found["module"]]
    (container,) = pod["spec"]["containers"]
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    assert container["command"] == ["ranklaunch"]
    words = container["args"]
    assert words[0] == "check"
    assert words[words.index("--") + 1 :][: len(program)] == program
    assert "resources" not in container


RETRIED_NEVER = [2, 69, 76, 78]


def test_volcano_asks_for_codes_before_events() -> None:
    policies = of_kind(parse(rendered("4", case("volcano-torchrun-gpu"))), "Job")["spec"]["policies"]
    assert [each.get("exitCode", each.get("event")) for each in policies] == [*RETRIED_NEVER, "PodFailed", "PodEvicted"]
    assert [each["action"] for each in policies] == ["TerminateJob"] * len(RETRIED_NEVER) + ["RestartJob"] * 2


@pytest.mark.parametrize("name", ["jobset-torchrun-gpu", "trainjob-torchrun-gpu"])
def test_jobset_fails_for_good_on_these_codes(name: str) -> None:
    (rules,) = found_under(parse(rendered("4", case(name))), "podFailurePolicy")
    assert rules["rules"][0]["onExitCodes"]["values"] == RETRIED_NEVER
    (policy,) = found_under(parse(rendered("4", case(name))), "failurePolicy")
    assert [rule["name"] for rule in policy["rules"]] == ["evicted", "neverAgain"]
    assert policy["rules"][1]["action"] == "FailJobSet"
    assert "PodFailurePolicy" in policy["rules"][1]["onJobFailureReasons"]


def found_under(thing: object, name: str) -> list[Object]:
    if isinstance(thing, list):
        return [found for each in thing for found in found_under(each, name)]
    if not isinstance(thing, dict):
        return []
    own = [thing[name]] if name in thing else []
    return own + [found for each in thing.values() for found in found_under(each, name)]
