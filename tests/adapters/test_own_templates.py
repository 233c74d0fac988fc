"""Options that a user's template gives a launcher count like those of the variable that has further options."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import helpers
import pytest

from ranklaunch.errors import ConfigError
from ranklaunch.plan.model import Plan
from testbench.places import ROOT

Exchanged = Callable[..., Plan]
NP = "-np {{ job.world_size }} -hostfile"  # as Open MPI 4 is told it


@pytest.fixture
def exchanged(tmp_path: Path) -> Exchanged:
    """The plan by the shipped template, in which one text has taken another's place."""

    def plan(method: str, old: str, new: str, *args: str, **env: str) -> Plan:
        text = (ROOT / "templates" / method / "command.j2").read_text()
        assert old in text
        own = tmp_path / method / "command.j2"
        own.parent.mkdir()
        own.write_text(text.replace(old, new, 1))
        given = {**helpers.local(1, "2"), "RANKLAUNCH_TEMPLATES": str(tmp_path), **env}
        return helpers.plan(given, *args, method=method, files={str(own): ""})

    return plan


@pytest.mark.parametrize("method", ["torchrun", "accelerate", "msrun", "deepspeed"])
def test_what_changes_nothing_of_them_leaves_the_files_of_ranks(exchanged: Exchanged, method: str) -> None:
    found = exchanged(method, "{{ extra }}", "{# more #} {{ extra }}", "--log_dir", "the program's own")
    assert found.outputs
    assert found.outputs == helpers.plan(helpers.local(1, "2"), method=method).outputs


@pytest.mark.parametrize(("method", "old", "new"), [
    ("torchrun", "{{ extra }}", "--log-dir lg --redirects 3"),
    ("torchrun", "{{ extra }}", "--log_dir=lg"),
    ("torchrun", "{{ extra }}", "--tee 3"),
    ("accelerate", "{{ extra }}", "--log_dir lg"),
    ("accelerate", "--log_dir {{ log_dir }}", ""),
    ("msrun", "{{ extra }}", "--log_dir=lg"),
    ("msrun", "{{ extra }}", "--log_d lg"),
    ("msrun", "--log_dir={{ log_dir }}", ""),
    ("deepspeed", "{{ extra }}", "--enable_each_rank_log lg"),
    ("deepspeed", "--enable_each_rank_log {{ rank_logs }}", ""),
])  # fmt: skip
def test_where_a_template_has_the_files_of_ranks_elsewhere_none_are_looked_for(
    exchanged: Exchanged, method: str, old: str, new: str
) -> None:
    found = exchanged(method, old, new)
    assert found.outputs is None
    assert not found.processes[0].env.keys() & {"PET_LOG_DIR", "PET_REDIRECTS"}
    assert not helpers.launcher(found).repeats


@pytest.mark.parametrize("method", ["torchrun", "accelerate"])
def test_files_that_a_template_has_torchrun_write_are_found_by_their_place(exchanged: Exchanged, method: str) -> None:
    kept = exchanged(method, "{{ extra }}", "--tee 3 --log_dir lg").kept
    assert kept
    assert re.fullmatch(kept.pattern, "job/lg/none_5x7/attempt_0/1/stderr.log")
    assert kept.keys == {0: "0", 1: "1"}
    assert not helpers.plan(helpers.local(1, "2"), method=method).kept


def test_where_torchrun_orders_the_nodes_itself_no_rank_is_known_by_its_files() -> None:
    c10d = "--rdzv_backend=c10d --redirects 3"
    assert not helpers.plan({**helpers.local(2, "2"), "RANKLAUNCH_EXTRA_TORCHRUN_PARAMS": c10d}, method="torchrun").kept


def test_torchruns_own_restarts_may_stand_in_a_template(exchanged: Exchanged) -> None:
    assert not helpers.launcher(exchanged("torchrun", "{{ extra }}", "--max-restarts=3")).ENDS_RANKS


@pytest.mark.parametrize("option", ["-np 1", "-n 3", "--np 1"])
def test_mpirun_is_not_told_another_number_of_ranks(exchanged: Exchanged, option: str, tmp_path: Path) -> None:
    """It ends with 0, and ranks of other nodes are not seen."""
    with pytest.raises(ConfigError) as found:
        exchanged("mpirun", NP, f"{option} -hostfile")
    assert f"{tmp_path}/mpirun/command.j2 has -np {option[-1]}: expected 2, the ranks that are planned in all" in str(found.value)
    assert "RANKLAUNCH_FEWER_RANKS=true" in str(found.value)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("{% include", "nice -n 5 {% include"),
        ("{{ mpirun }}", "ionice -c 2 -n 7 {{ mpirun }}"),
        (f"{NP} {{{{ hostfile }}}}", "-np 1 -hostfile {{ hostfile }} true : -np 1"),
        (f"{NP} {{{{ hostfile }}}}", "-np 1 {{ job.program.words }} --role chief : -np 1"),
    ],
)
def test_what_is_said_to_others_is_not_said_to_mpirun(exchanged: Exchanged, old: str, new: str) -> None:
    """To a program before it or behind it. Several programs divide the ranks among them."""
    assert exchanged("mpirun", old, new).outputs


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("torchrun\n", "nsys profile -t cuda torchrun\n"),
        ("{% if not job.program.is_python %}", "--no-python chrt -r 1 python {% if false %}"),
    ],
)
def test_what_is_said_to_others_is_not_said_to_torchrun(exchanged: Exchanged, old: str, new: str) -> None:
    assert exchanged("torchrun", old, new).outputs


@pytest.mark.parametrize("name", ["mpiexec", "/usr/bin/mpirun.openmpi", "orterun"])
def test_nor_is_it_by_another_of_its_names(exchanged: Exchanged, name: str) -> None:
    with pytest.raises(ConfigError, match="-np 1: expected 2"):
        exchanged("mpirun", "{{ mpirun }}", f"{name} -np 1")


def test_mpirun_may_be_told_another_number_on_purpose(exchanged: Exchanged) -> None:
    found = exchanged("mpirun", NP, "-np 1 -hostfile", RANKLAUNCH_FEWER_RANKS="true")
    assert found.fewer_ranks
