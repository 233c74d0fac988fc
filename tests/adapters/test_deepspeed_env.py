"""Variables for ranks in files of DeepSpeed's: .deepspeed_env in the home folder and in the working folder."""

from __future__ import annotations

import os
import re
import subprocess

import helpers
import pytest

from ranklaunch.errors import ConfigError
from ranklaunch.plan.model import Plan

HOME, HERE = "/home/u/.deepspeed_env", f"{helpers.CWD}/.deepspeed_env"
FILES = {HOME: "FOO=of home\nBAR=1 $FOO\n", HERE: "\n# what this run needs\nFOO = of here \nLIBS=/opt/x:$LIBS:${NONE}/y\n"}


def plan(by: str = "no_ssh", nodes: int = 2, node: int = 0, files: dict[str, str] | None = None, **env: str) -> Plan:
    given = helpers.local(nodes, "2", node, HOME="/home/u", RANKLAUNCH_DEEPSPEED_LAUNCHER=by, LIBS="/lib", PATH="/usr/bin", **env)
    return helpers.plan(given, files=FILES if files is None else files, method="deepspeed")


def forwarded(found: Plan) -> list[str]:
    return next(file.text for file in found.files if file.path.endswith("/deepspeed_env")).splitlines()


def test_they_reach_the_runner_and_come_last() -> None:
    """As they are written: DeepSpeed hands them to a shell, which puts in what they name."""
    found = plan("pdsh", BAR="of the container", NCCL_DEBUG="INFO")
    lines = forwarded(found)
    assert lines[-3:] == ["FOO=of here", "BAR=1 $FOO", "LIBS=/opt/x:$LIBS:${NONE}/y"]
    assert "NCCL_DEBUG=INFO" in lines[:-3]
    assert not [line for line in lines[:-3] if line.startswith(("BAR", "FOO", "LIBS"))]
    (reading,) = [each for each in found.values if each.name == "deepspeed_env"]
    assert (reading.value, reading.source) == ("FOO, BAR, LIBS", f"{HOME}, then {HERE}")


@pytest.mark.parametrize("by", ["no_ssh", "slurm"])
def test_without_a_shell_on_the_way_they_are_in_the_environment(by: str) -> None:
    env = plan(by, BAR="of the container").processes[0].env
    assert {name: env.get(name) for name in ("FOO", "BAR", "LIBS")} == {"FOO": "of here", "BAR": "1 of here", "LIBS": "/opt/x:/lib:/y"}


QUOTED = """
PROJECT="my project"
LEVEL = 'INFO'
BOTH="$LEVEL \\$x \\"y\\""
PRICE='5 $LEVEL'
EMPTY=""
INSIDE=a="b"
TWO="a" "b"
"""
READ = {"PROJECT": "my project", "LEVEL": "INFO", "BOTH": 'INFO $x "y"', "PRICE": "5 $LEVEL", "EMPTY": ""}
AS_IT_IS = {"INSIDE": 'a="b"', "TWO": '"a" "b"'}


@pytest.mark.parametrize("by", ["no_ssh", "slurm"])
def test_quotes_around_a_whole_value_are_not_part_of_it(by: str) -> None:
    env = plan(by, files={HERE: QUOTED}).processes[0].env
    assert {name: env.get(name) for name in {**READ, **AS_IT_IS}} == {**READ, **AS_IT_IS}


@pytest.mark.processes
def test_behind_pdsh_a_shell_gives_the_same_values() -> None:
    """DeepSpeed puts what has other characters between double quotes, into a line of exports."""
    lines = dict(line.split("=", 1) for line in forwarded(plan("pdsh", files={HERE: QUOTED})))
    words = {name: f'"{lines[name]}"' if re.search(r"[^\w@%+=:,./-]", lines[name]) else lines[name] for name in READ}
    exports = "".join(f"export {name}={word}; " for name, word in words.items())
    script = f"{exports}for name in {' '.join(READ)}; do printenv $name; done"
    told = subprocess.run(["sh", "-c", script], env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=True)
    assert told.stdout.splitlines() == [*READ.values()]


def test_by_mpi_a_plain_value_arrives_without_its_quotes() -> None:
    assert forwarded(plan("openmpi", files={HERE: 'FOO="INFO"\n'}))[-1] == "FOO=INFO"


def test_one_node_has_none_as_with_deepspeed_itself() -> None:
    found = plan(nodes=1)
    assert not {"FOO", "BAR", "LIBS"} & found.processes[0].env.keys()
    assert "deepspeed_env" not in [each.name for each in found.values]


def test_a_name_of_the_users_for_them() -> None:
    assert plan(DS_ENV_FILE="mine", files={**FILES, "/home/u/mine": "A=1\n"}).processes[0].env["A"] == "1"
    env = plan(DS_ENV_FILE="/etc/mine", files={**FILES, "/etc/mine": "A=2\n"}).processes[0].env
    assert (env["A"], "FOO" in env) == ("2", False)


def test_what_deepspeed_would_show_or_damage_stays_behind_and_is_named() -> None:
    files = {HERE: "API_TOKEN=hf_abcdefghijklmnopqrstuvwxyz0123\nFOO=of here\n"}
    warnings = plan("pdsh", files=files).warnings
    assert any("the ranks do not get API_TOKEN: DeepSpeed would print the value" in text for text in warnings)
    assert forwarded(plan("pdsh", files=files))[-1] == "FOO=of here"
    assert any("the ranks do not get FOO: DeepSpeed would change" in text for text in plan("openmpi", files=files).warnings)
    assert plan(files=files).processes[0].env["API_TOKEN"].startswith("hf_")


def test_lines_that_are_none_are_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        plan(files={HERE: "FOO=1\nexport BAR=2\nBAZ\n"})
    assert caught.value.problems == (
        f"{HERE}, line 2: expected NAME=VALUE, found 'export BAR' and 2 characters more",
        f"{HERE}, line 3: expected NAME=VALUE, found 'BAZ'",
    )
