"""Each platform's recorded environments are recognised as its own, nested ones by the documented order, and nothing raises."""

from __future__ import annotations

import helpers
import pytest
from golden_cases import Recorded, recorded
from hypothesis import given, settings
from hypothesis import strategies as st

from ranklaunch.adapters import platforms
from ranklaunch.adapters.platforms import PLATFORMS
from ranklaunch.env.reader import Reader
from ranklaunch.plan import planning

# Cases that are about another platform than that of their folder, or about none.
ELSEWHERE = {"modelarts/unknown-platform", "modelarts/no-program"}
CASES = {case.name: case for case in recorded() if case.folder in PLATFORMS}
OWN = {name: case for name, case in CASES.items() if name not in ELSEWHERE}
# What is in each other: whose environment has another's signs, too. The outer one is asked first.
NESTED = {
    "modelarts": {"volcano", "local"},
    "aihc": {"pytorchjob", "local"},
    "pai_dlc": {"pytorchjob", "local"},
    "volcano": {"pytorchjob", "local"},
    "metaflow": {"aws_batch", "jobset", "indexed_job", "local"},
    "azureml": {"volcano", "local"},
    "lepton": {"indexed_job", "local"},
    "runpod": {"lightning", "local"},
    "kubeflow_trainer": {"jobset", "indexed_job", "local"},
    "jobset": {"indexed_job", "local"},
}


def reader_of(*cases: Recorded) -> Reader:
    """Of several: what the later ones have comes over the earlier ones'."""
    env = {name: text for case in cases for name, text in case.env.items()}
    return helpers.reader(env, {path: text for case in cases for path, text in case.files.items()})


@helpers.for_each(OWN)
def test_a_recorded_environment_is_recognised_as_its_own(case: Recorded) -> None:
    assert case.folder == platforms.choose(reader_of(case)).NAME


@helpers.for_each(OWN)
def test_no_other_platform_takes_it_for_its_own(case: Recorded) -> None:
    claimed = {name for name, platform in PLATFORMS.items() if platform.detect(reader_of(case))}
    others = sorted(claimed - {case.folder, "local"} - NESTED.get(case.folder, set()))
    why = "detect looks for what this platform alone sets, in reader.env; to reader.given a RANKLAUNCH_ variable or an option is enough"
    assert not others, f"{', '.join(others)} takes it too: {why}"


@pytest.mark.parametrize(("outer", "inner"), [(outer, inner) for outer, inners in NESTED.items() for inner in sorted(inners)])
def test_the_outer_is_asked_before_the_inner(outer: str, inner: str) -> None:
    order = list(PLATFORMS)
    assert order.index(outer) < order.index(inner)


def test_volcano_under_modelarts_is_modelarts() -> None:
    env = helpers.modelarts(2, 8, 1)
    assert PLATFORMS["volcano"].detect(helpers.reader(env))
    assert platforms.choose(helpers.reader(env)).NAME == "modelarts"


SLURM = ("slurm/four-nodes", "slurm/script-on-one-node")
BEFORE_SLURM = list(PLATFORMS)[: list(PLATFORMS).index("slurm")]


@helpers.for_each([(CASES[slurm], case) for slurm in SLURM for case in CASES.values() if case.folder not in {"slurm", "local"}])
def test_what_srun_starts_in_a_container_is_slurms(slurm: Recorded, case: Recorded) -> None:
    """Slurm's daemons may run in pods, whose environment tasks can have; those of ModelArts have anything in them, Slurm too."""
    wanted = case.folder if case.folder in BEFORE_SLURM else "slurm"
    assert wanted == platforms.choose(reader_of(case, slurm)).NAME


def test_detecting_reads_nothing() -> None:
    """What a platform has only looked at is in no plan."""
    reader = helpers.reader({"HOSTNAME": "a-b-0-1", "JOB_COMPLETION_INDEX": "1", "PET_NNODES": "2", "RANKLAUNCH_JOB_NAME": "a"})
    for platform in PLATFORMS.values():
        platform.detect(reader)
    assert reader.ledger.readings == ()
    reader.check()


NAMES = sorted({name for variable in planning.every_variable() for name in variable.names} | {"VC_X_HOSTS", "VC__NUM", "HOSTNAME"})
PATHS = ["/etc/hosts", "/etc/mpi/hostfile", "/etc/volcano/worker.host", "/etc/volcano/.host", "/etc/volcano/x"]
texts = st.one_of(
    st.sampled_from(["1", "a-b-0-1", "a-0", "-0", "a", "launcher", ".", "10.0.0.1 a-b-0-1.a.n.svc", "10.0.0.1 a-b-0-1.a.n.svc.x\n", "#"]),
    st.sampled_from([value for name, value in helpers.HOSTILE.items() if "100 kB" not in name]),
    st.text(max_size=12),
)


@pytest.mark.one_python
@settings(max_examples=150, derandomize=True, database=None, deadline=None)
@given(
    env=st.dictionaries(st.sampled_from(NAMES), texts, max_size=6),
    files=st.dictionaries(st.sampled_from(PATHS), st.one_of(texts, st.just(ValueError("not UTF-8"))), max_size=3),
)
def test_detection_never_raises(env: dict[str, str], files: dict[str, str | ValueError]) -> None:
    reader = Reader(env, helpers.MemoryFiles(files), {}, helpers.CWD)
    assert all(platform.detect(reader) in (True, False) for platform in PLATFORMS.values())
    assert PLATFORMS["local"].detect(reader)
    assert all(PLATFORMS.may_be(name, reader) for name, platform in PLATFORMS.items() if platform.detect(reader))
