"""The command of `ranklaunch spec modelarts`, which a shell of the platform's reads."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import helpers
import pytest

from ranklaunch.plan.planning import every_variable
from ranklaunch.specs import warn

JOB = ("modelarts", "--name", "llm", "--image", "train:1", "--flavor", "f")
CODE = ("--set", "modelarts.codeDir=/bucket/code/")


def command(*words: str) -> str:
    found = helpers.call("spec", *JOB, *words)
    assert found.code == 0, found.err
    return str(json.loads(found.out)["algorithm"]["command"])


@helpers.for_each(
    [
        (("--", "${MA_JOB_DIR}/code/train.py"), '"${MA_JOB_DIR}"/code/train.py'),
        ((*CODE, "--", "train.py"), '"${MA_JOB_DIR}"/code/train.py'),
        ((*CODE, "--", "./tools/my train.py"), "\"${MA_JOB_DIR}\"'/code/tools/my train.py'"),
        ((*CODE, "--set", "modelarts.localCodeDir=/home/ma-user/x/", "--", "train.sh"), "/home/ma-user/x/train.sh"),
        ((*CODE, "--working-dir", "/home/ma-user/x", "--", "train.py"), "train.py"),
        ((*CODE, "--", "/app/train.py"), "/app/train.py"),
        ((*CODE, "--", "${MA_JOB_DIR}/code/train.py"), '"${MA_JOB_DIR}"/code/train.py'),
        ((*CODE, "--", "python"), "python"),
        ((*CODE, "--", "-m", "pkg.train"), "-m pkg.train"),
        (("--", "train.py"), "train.py"),
    ]
)
def test_the_script_is_found_where_the_code_is(words: tuple[str, ...], script: str) -> None:
    assert command(*words, "--epochs", "3") == f"ranklaunch run -- {script} --epochs 3"


@pytest.mark.processes
def test_lines_of_setup_stand_before_ranklaunch_which_replaces_their_shell(tmp_path: Path) -> None:
    (tmp_path / "ranklaunch").write_text('#!/bin/sh\necho "$$ $TOOLKIT $3"\n', encoding="utf-8")
    (tmp_path / "ranklaunch").chmod(0o755)
    (tmp_path / "set_env.sh").write_text("export TOOLKIT=cann\n", encoding="utf-8")
    setup = json.dumps([f"source {tmp_path}/set_env.sh"])
    line = command("--set", f"modelarts.setup={setup}", "--", "/app/train.py")
    assert line == f"source {tmp_path}/set_env.sh && exec ranklaunch run -- /app/train.py"
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    child = subprocess.Popen(["bash", "-c", line], env=env, stdout=subprocess.PIPE, text=True)
    assert child.communicate(timeout=60)[0] == f"{child.pid} cann /app/train.py\n"


@pytest.mark.parametrize("line", ["", "a\nb", "source x &&", "source x;", "# x", "source x # y"])
def test_lines_of_setup_that_would_hide_ranklaunch_are_refused(line: str) -> None:
    setup = f"modelarts.setup={json.dumps([line])}"
    found = helpers.call("spec", *JOB, "--set", setup, "--", "train.py")
    assert (found.code, "expected one line each" in found.err) == (78, True), found.err


@pytest.mark.processes
def test_the_platforms_variables_alone_are_put_in(tmp_path: Path) -> None:
    (tmp_path / "ranklaunch").write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n", encoding="utf-8")
    (tmp_path / "ranklaunch").chmod(0o755)
    args = ("--out=${MA_JOB_DIR}/a b/${MA_VJ_NAME}", "${HOME}", "$MA_JOB_DIR", "$(id)", "${MA_JOB_DIR:-x}", "", "'${MA_VJ_NAME}'")
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "MA_JOB_DIR": "/a dir/$(id) *", "MA_VJ_NAME": "job"}
    line = command(*CODE, "--", "train.py", *args)
    done = subprocess.run(["bash", "-c", line], env=env, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split("\n")[:-1] == [
        "run", "--", "/a dir/$(id) */code/train.py", "--out=/a dir/$(id) */a b/job", *args[1:6], "'job'",
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["modelarts", "slurm", "job"])
def test_what_looks_like_a_variable_and_stays_is_said(kind: str) -> None:
    image = () if kind == "slurm" else ("--image", "train:1")
    flavor = ("--flavor", "f") if kind == "modelarts" else ()
    words = ("--name", "llm", *image, *flavor, "--env", "DATA=${MA_JOB_DIR}/data", "--env", "PASSWORD=a$BCD", "--", "${HOME}/train.py")
    found = helpers.call("spec", kind, *words, "--dir", "$SCRATCH/x", "--re", "^a$|b$", "--own", "${MA_VJ_NAME}")
    assert found.code == 0
    said = [line.partition("warning: ")[2].partition(" stays")[0] for line in found.err.splitlines() if "stays as it is written" in line]
    own = [] if kind == "modelarts" else ["args: ${MA_VJ_NAME}"]
    assert said == ["script: ${HOME}", "args: $SCRATCH", *own, "env.DATA: ${MA_JOB_DIR}"]


@pytest.mark.parametrize(("program", "said"), [(("/bin/bash", "-ec", 'x "$SEED"'), False), (("bash", "x.sh", "$SEED"), True)])
def test_a_shell_of_the_program_s_own_replaces_variables(program: tuple[str, ...], said: bool) -> None:
    found = helpers.call("spec", "slurm", "--name", "llm", "--cpu", "1", "--", *program)
    assert (found.code, "args: $SEED stays as it is written" in found.err) == (0, said)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--deadline-s", "3601"), "lifecycle.deadlineSeconds=3601: ModelArts counts hours; the job is stopped after 2 hours"),
        (("--set", "lifecycle.gracePeriodSeconds=600"), "lifecycle.gracePeriodSeconds=600: only ranks get it"),
        (("--deadline-s", "7200", "--set", "lifecycle.gracePeriodSeconds=30"), ""),
    ],
)
def test_what_the_platform_does_otherwise_is_said(options: tuple[str, ...], said: str) -> None:
    found = helpers.call("spec", *JOB, *options, "--", "train.py")
    assert found.code == 0
    assert (said in found.err) if said else found.err == ""


@helpers.for_each(
    [
        ("MA_RUN_METHOD=torchrun", "set env.RANKLAUNCH_METHOD, which means the same"),
        ("MA_EXTRA_TORCHRUN_PARAMS=--tee=3", "set env.RANKLAUNCH_EXTRA_TORCHRUN_PARAMS, which means the same"),
        ("MA_TORCHRUN_MASTER_PORT=1234", "set env.RANKLAUNCH_MASTER_PORT, which means the same"),
        ("MA_NUM_HOSTS=2", "leave it out"),
        ("ENABLE_HTTPS=1", "leave it out"),
    ]
)
def test_names_that_the_platform_keeps_for_itself_are_warned_of(variable: str, instead: str) -> None:
    found = helpers.call("spec", *JOB, "--env", variable, "--", "train.py")
    name = variable.partition("=")[0]
    assert (found.code, found.err) == (
        0, f"ranklaunch: warning: env.{name}: ModelArts reserves this name, and a job that sets it may not start: {instead}\n"
    )  # fmt: skip
    assert json.loads(found.out)["algorithm"]["environments"][name]


def test_every_setting_of_the_user_s_has_a_name_that_the_platform_does_not_keep() -> None:
    """The warning names it, and a specification sets no other."""
    user = [v.names for v in every_variable() for name in v.names if name.startswith("MA_") and v.setter(name) == "user"]
    assert {name: names[0] for names in user for name in names if name.startswith("MA_")}.items() <= warn.OWN_NAMES.items()
    known = {name for variable in every_variable() for name in variable.names}
    assert set(warn.OWN_NAMES.values()) <= known
    for method in ("torchrun", "msrun", "ranktable", "mpirun", "spawn"):
        words = ("--nodes", "2", "--devices", "2", "--device-kind", "npu", "--method", method)
        found = helpers.call("spec", *JOB, *words, "--", "train.py")
        names = json.loads(found.out)["algorithm"]["environments"]
        assert "RANKLAUNCH_METHOD" in names
        assert [name for name in names if name.startswith("MA_")] == []


@helpers.for_each(
    {
        "asked for": (("--method", "ranktable"), "/user/config"),
        "in another place": (("--method", "ranktable", "--env", "RANK_TABLE_FILE=/mnt/x"), "/mnt/x"),
        "one of the user's own": (("--method", "ranktable", "--env", "RANK_TABLE_FILE_V_1_0=/mnt/x.json"), None),
        "not needed": (("--method", "torchrun"), None),
    }
)
def test_the_platform_makes_a_rank_table_where_one_is_needed(options: tuple[str, ...], folder: str | None) -> None:
    found = helpers.call("spec", *JOB, "--device-kind", "npu", *options, "--", "train.py")
    assert json.loads(found.out)["algorithm"]["environments"].get("RANK_TABLE_FILE") == folder


def test_the_platforms_own_retries_are_asked_for() -> None:
    def annotations(*words: str) -> object:
        found = helpers.call("spec", *JOB, "--devices", "1", *words, "--", "train.py")
        assert found.code == 0, found.err
        return json.loads(found.out)["metadata"].get("annotations")

    hang, always = ("--set", "modelarts.hangRetry=true"), ("--set", "modelarts.unconditionalRetry=true")
    assert annotations() is None
    assert annotations(*hang) == {"fault-tolerance/hang-retry": "true"}
    assert annotations("--max-restarts", "2", *always) == {
        "fault-tolerance/job-retry-num": "2", "fault-tolerance/job-unconditional-retry": "true",
    }  # fmt: skip
    found = helpers.call("spec", *JOB, "--device-kind", "cpu", *hang, "--", "train.py")
    assert (found.code, "modelarts.hangRetry: ModelArts detects hangs only in jobs with GPUs or NPUs; leave it out" in found.err) == (
        78,
        True,
    )


def test_a_variable_that_is_made_from_a_value_is_refused_with_its_option() -> None:
    found = helpers.call("spec", *JOB, "--env", "RANKLAUNCH_METHD=torchrun", "--", "train.py")
    remedy = "did you mean RANKLAUNCH_METHOD? It is made from mode; set that (--method)\n"
    assert (found.code, found.err.endswith(remedy)) == (78, True), found.err


def test_an_image_in_one_text_is_refused_with_its_map(tmp_path: Path) -> None:
    (tmp_path / "v.json").write_text('{"image": "org/train:1.4"}', encoding="utf-8")
    words = ("--values", str(tmp_path / "v.json"), "--flavor", "f", "--name", "a")
    found = helpers.call("spec", "modelarts", *words, "--", "train.py")
    assert (found.code, '{"repository": "org/train", "tag": "1.4"}' in found.err) == (78, True)


RETRIES = "restart.maxRestarts=2: ModelArts restarts the job only after a fault that it detects"
HANGS = "modelarts.hangRetry: ModelArts may take ranklaunch's own reads and writes for a sign of life"
ALWAYS = ("--set", "modelarts.unconditionalRetry=true")
WARNED = {
    "retries": (("--max-restarts", "2"), RETRIES),
    "retries after any code": (("--max-restarts", "2", *ALWAYS), ""),
    "hang": (("--set", "modelarts.hangRetry=true"), HANGS),
    "hang that ranklaunch ends": (
        ("--set", "modelarts.hangRetry=true", "--set", "hang.action=stop", *ALWAYS),
        "",
    ),
    "restart after a hang": (
        ("--env", "RANKLAUNCH_HANG=restart"),
        "env.RANKLAUNCH_HANG=restart: acts as stop, because restart.inPlace is 0",
    ),
    "both retry": (
        ("--set", "restart.inPlace=2", *ALWAYS),
        "RANKLAUNCH_MAX_RESTARTS=2 and modelarts.unconditionalRetry: a permanent failure is tried 3",
    ),
    "ARF": (("--env", "MS_ENABLE_TFT={ARF:1}"), "env.MS_ENABLE_TFT has ARF, with which live ranks"),
}


@pytest.mark.parametrize(("options", "warning"), WARNED.values(), ids=WARNED)
def test_retries_that_do_not_come_are_warned_of(options: tuple[str, ...], warning: str) -> None:
    found = helpers.call("spec", *JOB, "--devices", "1", *options, "--", "train.py")
    assert found.code == 0, found.err
    assert found.err.startswith(f"ranklaunch: warning: {warning}" if warning else "")
    assert len(found.err.splitlines()) == bool(warning)


CODE_ELSEWHERE = {
    "another folder": (("/b/proj/", "${MA_JOB_DIR}/code/train.py"), True),
    "the last folder": (("/b/proj/", "${MA_JOB_DIR}/proj/train.py"), False),
    "without a folder of the code": (("", "${MA_JOB_DIR}/code/train.py"), False),
}


@pytest.mark.parametrize(("job", "warned"), CODE_ELSEWHERE.values(), ids=CODE_ELSEWHERE)
def test_a_script_beside_the_folder_of_the_code_is_warned_of(
    job: tuple[str, str],
    warned: bool,
) -> None:
    folder, script = job
    found = helpers.call("spec", *JOB, "--set", f"modelarts.codeDir={folder}", "--", script)
    where = "the code is put into ${MA_JOB_DIR}/proj, the last folder of modelarts.codeDir"
    assert (found.code, where in found.err) == (0, warned), found.err


def test_a_shell_that_sources_a_file_before_the_program_is_warned_of() -> None:
    program = ("bash", "-c", "source x/set_env.sh && python train.py")
    found = helpers.call("spec", *JOB, "--", *program)
    assert (found.code, "put that line into modelarts.setup" in found.err) == (0, True), found.err


def test_the_page_shows_what_comes_out() -> None:
    page = (helpers.ROOT / "docs" / "modelarts.md").read_text(encoding="utf-8")
    assert f"\n       {command(*CODE, '--', 'train.py', '--epochs', '3')}\n" in page
