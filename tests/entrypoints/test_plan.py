"""ranklaunch plan: one value in three forms."""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import replace
from pathlib import Path

import helpers
import pytest

from ranklaunch.adapters.launchers import LAUNCHERS
from ranklaunch.plan import compact_text, show
from ranklaunch.plan.model import as_json

ENV = helpers.modelarts(3, 2, 1)


def test_json_of_one_node_is_an_object_and_of_all_an_array() -> None:
    one = helpers.call("plan", "--format=json", "x.py", env=ENV).json
    every = helpers.call("plan", "--format=json", "--all-nodes", "x.py", env=ENV).json
    assert one["job"]["node_index"] == 1
    assert [plan["job"]["node_index"] for plan in every] == [0, 1, 2]
    assert {plan["job"]["world_size"] for plan in every} == {6}


def test_one_node_can_be_asked_for() -> None:
    for node in range(3):
        found = helpers.call("plan", "--format=json", "--node", str(node), "x.py", env=ENV).json
        assert found["job"]["node_index"] == node
    found = helpers.call("plan", "--node", "3", "x.py", env=ENV)
    assert found.code in (2, 78)
    assert "--node" in found.err
    assert "0 to 2" in found.err


@pytest.mark.parametrize("form", ["text", "sh"])
def test_all_nodes_in_the_other_forms(form: str) -> None:
    every = helpers.call("plan", f"--format={form}", "--all-nodes", "x.py", env=ENV).out
    single = [helpers.call("plan", f"--format={form}", "--node", str(node), "x.py", env=ENV).out for node in range(3)]
    assert every == "\n".join(single)


def routed(*words: str, **env: str) -> dict[int, tuple[list[str], list[str]]]:
    """By node: the words that name ranks and master, and what is said of RANK_AFTER_ACC. The environment is node 1's, its rank 2."""
    planned = {"ROUTE_PLAN": "true", "RANK_AFTER_ACC": "2", "MA_MASTER_INDEX": "3", **env}
    found = helpers.call("plan", "--format=json", "--method=torchrun", *words, "x.py", env=helpers.modelarts(4, 2, 1, **planned))
    return {
        each["job"]["node_index"]: (
            [word for word in each["processes"][0]["argv"] if word.startswith(("--node_rank", "--master_addr"))],
            [text for text in each["warnings"] if "RANK_AFTER_ACC" in text],
        )
        for each in (found.json if isinstance(found.json, list) else [found.json])
    }


def test_of_all_nodes_only_this_ones_planned_rank_is_known() -> None:
    found = routed("--all-nodes")
    assert found[1] == routed()[1] == (["--node_rank=2", f"--master_addr={helpers.hosts(4)[3]}"], [])
    assert {words[1] for words, _ in found.values()} == {f"--master_addr={helpers.hosts(4)[3]}"}
    assert found[3] == (["--node_rank=0", f"--master_addr={helpers.hosts(4)[3]}"], [])  # rank 0 is the master's
    for node, rank in ((0, 3), (2, 2)):
        words, (text,) = found[node]
        assert words[0] == f"--node_rank={rank}"
        assert text == (
            f"ROUTE_PLAN=true: this is the environment of node 1; the RANK_AFTER_ACC of node {node} is known only "
            f"on that node: --node_rank={rank} is a placeholder"
        )
    for node in range(4):
        assert routed("--node", str(node)) == {node: found[node]}


def test_a_planned_rank_that_no_node_has_is_missing_on_all() -> None:
    found = routed("--all-nodes", RANK_AFTER_ACC="")
    assert {words[1] for words, _ in found.values()} == {f"--master_addr={helpers.hosts(4)[0]}"}
    assert {text for _, (text,) in found.values()} == {"ROUTE_PLAN=true, but RANK_AFTER_ACC is not set: the platform's node order is used"}


def test_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "root/user/config").mkdir(parents=True)
    table = helpers.group_table([(f"{helpers.JOB}-worker-{i}", f"192.0.2.{i}", "01") for i in range(3)])
    (tmp_path / "root/user/config/jobstart_hccl.json").write_text(table, encoding="utf-8")
    before = sorted(tmp_path.rglob("*"))
    for form in ("text", "json", "sh"):
        found = helpers.call("plan", "--root=root", f"--format={form}", "--all-nodes", "x.py", env=ENV)
        assert found.code == 0, found.err
    assert sorted(tmp_path.rglob("*")) == before


@helpers.for_each(helpers.HOSTILE)
def test_words_survive_every_form(value: str) -> None:
    argv = ["python", "-u", "x.py", value, "end"]
    assert helpers.call("plan", "--format=json", "--method=plain", "x.py", value, "end").json["processes"][0]["argv"] == argv
    script = helpers.call("plan", "--format=sh", "--method=plain", "x.py", value, "end").out
    words = shlex.split(script[script.index("exec env") : script.rindex(")")].replace(" \\\n ", " "))
    assert words[-5:] == argv


@pytest.mark.parametrize("form", ["text", "json", "sh"])
@pytest.mark.parametrize(
    ("words", "env"),
    [
        (["--api_key", "hunter2"], {}),
        (["--password=hunter2"], {}),
        (["--dsn=https://u:hunter2@host"], {}),
        ([], {"RANKLAUNCH_EXTRA_TORCHRUN_PARAMS": "--no_such_option_password=hunter2"}),
    ],
)
def test_secrets_are_shown_in_no_form(form: str, words: list[str], env: dict[str, str]) -> None:
    found = helpers.call("plan", f"--format={form}", "--method=torchrun", "x.py", *words, env=env)
    assert found.code == 0
    assert "hunter2" not in found.out
    assert "***" in found.out


@pytest.mark.processes
def test_what_is_no_secret_is_shown(tmp_path: Path) -> None:
    """RANKLAUNCH_PASS is what is passed on; of a file that a value is from, the folders say nothing of it."""
    for env in ({}, {"RANKLAUNCH_PASS": "--ranks {{ wrld_size }}"}):
        words = () if env else ("--pass=--ranks {{ wrld_size }}",)
        found = helpers.call("plan", "--method=spawn", *words, "x.py", env=env)
        assert (found.code, "'wrld_size' is undefined" in found.err) == (78, True), found.err
    logs = tmp_path / "secret-project"
    (logs / "attempt_1").mkdir(parents=True)
    found = helpers.call("plan", "--method=spawn", "--pass=--ranks {{ world_size }} --token=hunter2", f"--log-dir={logs}", "x.py")
    assert f"attempt = 2  [{logs}/attempt_*]" in found.out
    assert "pass = --ranks {{ world_size }} --token=***  [option --pass]" in found.out


def test_secrets_of_added_variables_are_shown_in_no_form() -> None:
    plan = helpers.plan(helpers.local(), method="spawn", files={"ma-pre-start.sh": ""})
    secret = {"HF_TOKEN": "hunter2", "PROXY": "http://u:hunter2@host"}
    changed = replace(
        plan,
        processes=tuple(replace(process, env={**process.env, **secret}) for process in plan.processes),
        prepare=tuple(replace(step, env=secret, argv=("x", "--password", "hunter2")) for step in plan.prepare),
    )
    for shown in (show.as_text(changed), show.as_shell(changed), json.dumps(as_json(changed))):
        assert "hunter2" not in shown
        assert "HF_TOKEN" in shown


@pytest.mark.parametrize("name", ["a\nmethod    plain: not so", "\x1b]0;title\x07", "a\rb"])
def test_text_stays_text(name: str) -> None:
    found = helpers.call("plan", "--method=spawn", "x.py", env={"RANKLAUNCH_JOB_NAME": name})
    assert found.code == 0
    assert found.out.splitlines()[1].startswith("method    spawn")
    assert not any(character in found.out for character in "\x1b\x07\r")


def test_text_shows_each_value_with_its_source() -> None:
    short = helpers.call("plan", "--slots=1", "x.py", env=ENV).out.splitlines()
    every = helpers.call("plan", "--slots=1", "--verbose", "x.py", env=ENV).out.splitlines()
    for found in (short, every):
        assert "  slots = 1  [option --slots] over MA_NUM_GPUS=2" in found
        assert "  nodes = 3  [MA_NUM_HOSTS] over VC_WORKER_NUM=3" in found
    assert "  grace_s = 25  [default]" in every
    assert "  grace_s = 25  [default]" not in short
    assert any(line.endswith("more values by default: --verbose shows all") for line in short)


def test_ranks_that_differ_in_numbers_alone_are_one() -> None:
    words = ("plan", "--method=spawn", "--slots=8", "--log-dir=/logs", "x.py")
    short, every = (helpers.call(*words[:1], *more, *words[1:]).out for more in ((), ("--verbose",)))
    (line,) = (line for line in short.splitlines() if "log /logs" in line)
    assert line == "  rank 0..7, log /logs/attempt_1/rank_0..7.log, by the template spawn/command.j2"
    assert " RANK=0..7 LOCAL_RANK=0..7 WORLD_SIZE=8 " in short
    assert every.count("  rank ") == 8


@helpers.for_each(
    [
        ([("a 1",), ("a 2",)], [("a 1",), ("a 2",)]),
        ([("a 1",), ("b 2",), ("b 3",), ("b 4",)], [("a 1",), ("b 2..4",)]),
        ([("a 1", "x"), ("a 3", "x"), ("a 07", "x")], [("a {1,3,07}", "x")]),
        ([], []),
    ]
)
def test_folding(blocks: list[tuple[str, ...]], expected: list[tuple[str, ...]]) -> None:
    assert list(compact_text.folded(blocks)) == expected


def test_what_is_of_this_machine_is_said_of_another_ones_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ma-pre-start.sh").write_text("")
    (tmp_path / "env").write_text(f"RANKLAUNCH_SLOTS=2\nRANKLAUNCH_RANK_TABLE={tmp_path}/table.json\nRANKLAUNCH_METHOD=ranktable\n")
    (tmp_path / "table.json").write_text(helpers.server_table([("127.0.0.1", [("0", "0"), ("1", "1")])]))
    title = "\nfrom this machine, not from the one that is planned\n"
    assert title not in helpers.call("plan", "x.py").out
    found = helpers.call("plan", "--env-file=env", "x.py").out
    listed = found.partition(title)[2].partition("\nvalues\n")[0].splitlines()
    assert f"  {tmp_path}, the start of relative paths" in listed
    assert {f"  {tmp_path}/table.json", "  ma-pre-start.sh"} <= set(listed)
    (tmp_path / "root").mkdir()
    below = helpers.call("plan", "--env-file=env", "--root=root", "x.py").out.partition(title)[2].partition("\nvalues\n")[0]
    assert f"{tmp_path}/table.json" not in below
    assert "  ma-pre-start.sh" in below.splitlines()


@helpers.for_each({name: name for name in LAUNCHERS})
def test_commands_say_which_template_they_come_from(method: str) -> None:
    files = {"/t.json": helpers.group_table([(f"{helpers.JOB}-worker-{i}", f"192.0.2.{i}", "01") for i in range(2)])}
    more = {"RANK_TABLE_FILE": "/t.json"} if method == "ranktable" else {}
    plan = helpers.plan(helpers.modelarts(2, 2, **more), method=method, files=files)
    template = f"{method}/command.j2"
    assert {process.template for process in plan.processes} == {template}
    assert f", by the template {template}" in show.as_text(plan)


def test_a_working_folder_that_is_gone_is_no_defect(monkeypatch: pytest.MonkeyPatch) -> None:

    def gone() -> str:
        raise FileNotFoundError(2, os.strerror(2))

    monkeypatch.setattr(os, "getcwd", gone)
    assert helpers.call("plan", "--log-dir=/logs", "x.py").code != 70
    found = helpers.call("plan", "--log-dir=rel", "x.py")
    said = "ranklaunch: rel: the working folder was removed, so relative paths cannot be resolved; use an absolute path\n"
    assert (found.code, found.out, found.err) == (78, "", said)
    for command in ("report", "logs", "status", "save", "stacks"):
        assert helpers.call(command, "rel") == found
    assert helpers.call("plan", "x.py", env={"RANKLAUNCH_LOG_DIR": "rel"}) == found
    for command in ("plan", "check"):
        unsaid = helpers.call(command, "x.py")
        assert (unsaid.code, unsaid.out, unsaid.err) == (78, "", said.replace(" rel:", " --log-dir ./ranklaunch-logs:")), command
    for command in ("logs", "status"):
        assert helpers.call(command).err == said.replace(" rel:", " ./ranklaunch-logs:"), command


def test_a_folder_in_place_of_a_platform_file_is_no_defect(tmp_path: Path) -> None:
    """Container engines make one where the file to be mounted is missing."""
    (tmp_path / "etc/volcano/worker.host").mkdir(parents=True)
    env = {name: value for name, value in ENV.items() if name != "VC_WORKER_HOSTS"}
    assert helpers.call("plan", f"--root={tmp_path}", "x.py", env=env).code != 70


def test_json_keeps_its_order_and_ends_with_a_line_end() -> None:
    out = helpers.call("plan", "--format=json", "x.py").out
    assert out == json.dumps(json.loads(out), indent=1) + "\n"
