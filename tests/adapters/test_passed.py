"""Arguments that a user's template makes of the job's values, for programs that start their ranks as they are told."""

from __future__ import annotations

import shlex

import helpers
import pytest

from ranklaunch.errors import ConfigError
from ranklaunch.plan.model import Plan

PLACE = "--nnodes {{ nodes }} --node_rank {{ node_index }} --nproc_per_node={{ slots }} --master_addr {{ master_addr }}"


def plan(template: str, *args: str, node: int = 1, method: str = "plain", job: str = "demo", **env: str) -> Plan:
    given = {**helpers.local(2, "4,2", node), "RANKLAUNCH_JOB_NAME": job, **env}
    return helpers.plan(given, *args, method=method, **{"pass": template})


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (PLACE, "--nnodes 2 --node_rank 1 --nproc_per_node=2 --master_addr n0"),
        ("{{ first_rank }} {{ world_size }} {{ master_port }} {{ job.attempt }}", "4 6 29500 1"),
        ("'a b' {{ job.name }} x{{job.name}}", "'a b' 'it'\"'\"'s $HOME' 'xit'\"'\"'s $HOME'"),
        ("{% for i in range(slots) %}--dev {{ i }} {% endfor %}", "--dev 0 --dev 1"),
        ("{% if node_index == 0 %}--save{% endif %}", ""),
    ],
)
def test_they_come_after_the_programs_own(template: str, expected: str) -> None:
    argv = plan(template, "--lr", "1", job="it's $HOME").processes[0].argv
    assert argv == ("python", "-u", "train.py", "--lr", "1", *shlex.split(expected))


def test_the_port_is_the_users() -> None:
    found = plan("{{ master_port }}", RANKLAUNCH_MASTER_PORT="1234")
    assert (found.processes[0].argv[-1], found.warnings) == ("1234", ())


@pytest.mark.parametrize("method", ["torchrun", "spawn", "accelerate", "pytorch"])
def test_every_method_passes_them_on(method: str) -> None:
    assert "--node=1" in plan("--node={{ node_index }}", method=method, RANKLAUNCH_SLOTS="2").processes[0].argv


def test_nodes_compare_the_template_and_not_what_it_makes() -> None:
    told = [muster.facts["arguments"] for node in (0, 1) if (muster := plan("--first {{ first_rank }}", "--lr", "1", node=node).muster)]
    assert told == ["--lr 1 '--first {{ first_rank }}'"] * 2


@pytest.mark.parametrize(
    ("template", "said"),
    [("{{ nope }}", "'nope' is undefined"), ("{{ node_index", "line 1"), ("'open", "No closing quotation"), ("{{ job.nodes }}", "")],
)
def test_what_cannot_be_rendered_is_refused(template: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        plan(template)
    assert "template option --pass" in str(caught.value)
    assert said in str(caught.value)
