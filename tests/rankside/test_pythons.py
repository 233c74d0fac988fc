"""Records inside each Python of this machine, from 2.7 on: what is written, and that nothing else changes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ranklaunch.ends.model import MOST_RECORD_BYTES, RANK_NUMBERS, RECORD_SCHEMA, Process, Record, record_order
from ranklaunch.env import settings
from ranklaunch.files import rankside
from ranklaunch.processes.records import Records

pytestmark = [pytest.mark.processes, pytest.mark.one_python]

VERSIONS = ("2.7", *(f"3.{minor}" for minor in range(6, 15)))


def pythons() -> dict[str, str]:
    """One of each version that is on PATH or in pyenv, and the one that runs this, by version."""
    home = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = {".".join(map(str, sys.version_info[:2])): sys.executable}
    for version in VERSIONS:
        there = [shutil.which(f"python{version}"), *map(str, sorted(home.glob(f"{version}.*/bin/python{version}")))]
        for path in filter(None, there):
            if version not in found and subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0:
                found[version] = path
    return found


PYTHONS = pythons()


@pytest.fixture(params=PYTHONS)
def python(request: pytest.FixtureRequest) -> str:
    """The version."""
    return str(request.param)


def in_order(folder: Path) -> list[Record]:
    """As they were written."""
    return sorted(Records(str(folder)).new(), key=record_order)


Ran = Callable[..., "tuple[subprocess.CompletedProcess[str], list[Record]]"]


@pytest.fixture
def run(python: str, tmp_path: Path) -> Ran:
    """Run a program with records; return its end, and the records."""
    folder = tmp_path / "records" / "node_0"
    folder.mkdir(parents=True)

    def ran(text: str, *options: str, path: str = "", **env: str) -> tuple[subprocess.CompletedProcess[str], list[Record]]:
        program = tmp_path / "program.py"
        program.write_text(text, encoding="utf-8")
        given = {"PATH": os.defpath, "PYTHONPATH": f"{rankside()}:{path}", settings.RECORDS_DIR: str(folder), **env}
        command = [PYTHONS[python], *options, str(program)]
        done = subprocess.run(command, env=given, capture_output=True, text=True, timeout=120, check=False)
        return done, in_order(folder)

    return ran


def is_recorded(python: str) -> bool:
    return VERSIONS.index(python) >= VERSIONS.index("3.7")


RAISES = "import sys\nsys.excepthook = lambda *_: None\ndef f():\n    raise ValueError('loss is nan')\nf()\n"


def test_an_uncaught_exception(run: Ran, python: str) -> None:
    done, found = run(RAISES, RANK="1", WORLD_SIZE="2")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")
    assert [record.kind for record in found] == (["rank", "exception"] if is_recorded(python) else [])
    for rank, raised in [found] if found else []:
        assert dict(rank.variables) == {"RANK": "1", "WORLD_SIZE": "2"}
        assert rank.top == Process(rank.pid, rank.start)
        (error,) = raised.chain
        assert (error.type, error.message, [frame.function for frame in error.frames]) == ("ValueError", "loss is nan", ["<module>", "f"])
        assert raised.process == rank.process


def test_a_thread(run: Ran, python: str) -> None:
    text = "import threading\ndef f(): raise ValueError('x')\nt = threading.Thread(target=f, name='loader')\nt.start()\nt.join()\n"
    done, found = run(text)
    assert done.returncode == 0
    assert done.stderr.count("Traceback") == 1
    expected = [("exception", "thread", "loader")] if is_recorded(python) else []
    assert [(record.kind, record.where, record.thread) for record in found] == expected


def test_a_thread_that_exits_is_silent(run: Ran) -> None:
    done, found = run("import sys, threading\nt = threading.Thread(target=sys.exit, args=(3,))\nt.start()\nt.join()\n")
    assert (done.returncode, done.stderr, found) == (0, "", [])


CHILDREN = """
import multiprocessing, sys
def raises(): raise KeyError("lr")
def exits(): sys.exit(5)
if __name__ == "__main__":
    kinds = [multiprocessing.get_context(how) for how in ("fork", "spawn")] if sys.version_info > (3,) else [multiprocessing]
    codes = []
    for kind in kinds:
        for target in (raises, exits):
            child = kind.Process(target=target)
            child.start()
            child.join()
            codes.append(child.exitcode)
    assert codes in ([1, 5, 1, 5], [1, 5]), codes
"""


def test_children_of_multiprocessing(run: Ran, python: str) -> None:
    done, found = run(CHILDREN, RANK="0")
    assert done.returncode == 0, done.stderr
    assert "rankside" not in done.stderr  # no frame of ours in what users see
    kinds = [record.kind for record in found]
    assert kinds.count("rank") == (1 if is_recorded(python) else 0)
    assert [record.where for record in found if record.kind == "exception"] == (["process"] * 2 if is_recorded(python) else [])


EXITS = {
    "a text": ("import sys; sys.exit('no data: token=hf_abcdefghijklmnop')", 1, (1, "no data: token=***")),
    "a number": ("import sys; sys.exit(3)", 3, (3, "")),
    "caught": ("import sys\ntry: sys.exit(4)\nexcept SystemExit as error: assert error.code == 4 and str(error) == '4'\n", 0, (0, "")),
    "nothing": ("import sys; sys.exit()", 0, (0, "")),
    "an exception": ("raise ValueError('x')", 1, (1, "")),
    "the end": ("", 0, (0, "")),
}


@pytest.mark.parametrize("text", [text for text, _, _ in EXITS.values()], ids=EXITS)
def test_exits_of_a_launcher(run: Ran, python: str, tmp_path: Path, text: str) -> None:
    """And of other programs: nothing is written, and sys.exit is as it was."""
    code, recorded = next((code, recorded) for other, code, recorded in EXITS.values() if other == text)
    done, found = run(f"import sys\nassert type(sys.exit) is type(len)\n{text}")
    assert (done.returncode, [record.kind for record in found if record.kind == "exit"]) == (code, [])
    (tmp_path / "torchrun").write_text(text, encoding="utf-8")
    done, found = run(f"import os, sys\nos.execv(sys.executable, [sys.executable, {str(tmp_path / 'torchrun')!r}])\n")
    assert done.returncode == code
    told = [(record.code, record.text) for record in found if record.kind == "exit"]
    assert told == ([recorded] if is_recorded(python) else [])


def test_coverage_does_not_measure_our_files(run: Ran, python: str) -> None:
    """Files that begin so are none to it; before Python 3.8 a code object cannot be given another name."""
    text = "import sys, threading, traceback\nsys.stdout.write(vars(sys)['excepthook'].__code__.co_filename)\n"
    done, _ = run(text)
    names = {"3.7": f"{rankside()}/ranklaunch_rankside/__init__.py"}
    if is_recorded(python):
        assert done.stdout == names.get(python, "<ranklaunch_rankside>")


@pytest.mark.parametrize("option", ["-E", "-S", "-s", "-B"])
def test_options_of_python(run: Ran, option: str) -> None:
    """None of them breaks, or prints anything."""
    done, _ = run("import sys; sys.stdout.write('here')", option, RANK="0")
    assert (done.returncode, done.stdout, done.stderr) == (0, "here", "")


def test_the_sitecustomize_that_is_shadowed_is_run(run: Ran, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text("import os\nos.environ['OWN'] = __file__\n", encoding="utf-8")
    done, _ = run("import os, sys; sys.stdout.write(os.environ['OWN'])", path=str(tmp_path / "own"))
    assert done.stdout.replace(".pyc", ".py") == f"{tmp_path}/own/sitecustomize.py"


def test_a_folder_that_is_not_there_disturbs_nobody(run: Ran, tmp_path: Path) -> None:
    done, found = run("raise ValueError('x')", RANK="0", **{settings.RECORDS_DIR: str(tmp_path / "none")})
    bare, _ = run("raise ValueError('x')", PYTHONPATH="")
    assert (done.returncode, done.stderr, found) == (1, bare.stderr, [])


MANY = """import threading
def f(i): raise ValueError(i)
for i in range(1, 31):
    t = threading.Thread(target=f, args=(i,))
    t.start()
    t.join()
"""


def test_the_first_and_the_last_of_many(run: Ran, python: str) -> None:
    _, found = run(MANY)
    assert sorted(record.number for record in found) == ([*range(1, 9), *range(23, 31)] if is_recorded(python) else [])


def test_a_record_is_never_too_large(run: Ran, python: str, tmp_path: Path) -> None:
    text = (
        "def f(n):\n    if not n: raise ValueError('x' * 100000)\n"
        "    try: f(n - 1)\n    except ValueError as error: raise ValueError('\\u1234' * 100000)\n"
        "f(60)\n"
    )
    _, found = run(text)
    sizes = [path.stat().st_size for path in (tmp_path / "records" / "node_0").iterdir()]
    assert (len(found), all(size <= MOST_RECORD_BYTES for size in sizes)) == (1 if is_recorded(python) else 0, True)


def test_the_names_that_both_sides_know() -> None:
    """What runs inside the user's interpreter imports nothing of ranklaunch, so it spells them itself."""
    texts = {path.name: path.read_text(encoding="utf-8") for path in (Path(rankside()) / "ranklaunch_rankside").glob("*.py")}
    assert f'FOLDER = "{settings.RECORDS_DIR}"' in texts["__init__.py"]
    assert f'MARK = "{settings.RANK_HEAD}"' in texts["records.py"]
    assert f'SUPERVISOR = "{settings.OUTER_RUN}"' in texts["heads.py"]
    assert f'startswith("{settings.BELOW}")' in texts["records.py"]
    assert json.dumps(RECORD_SCHEMA) in texts["records.py"]
    assert [name for name in RANK_NUMBERS if f'"{name}"' not in texts["__init__.py"]] == []


SECRETS = {
    "cannot connect to https://user:pw123@host/x": "pw123",
    "Authorization: Bearer abc123def": "abc123def",
    "password='hunter2 x'": "hunter2",
    "hf_abcdefghijklmnop was refused": "hf_abcdefghijklmnop",
    "{'secret_key': 'AKxyz'}": "AKxyz",
    "AWS_SECRET_ACCESS_KEY=abc/def+gh": "abc/def",
    "mysql://root:abcd@db:3306/x": "abcd",
    "AccountKey=abcdef==;EndpointSuffix=core": "abcdef",
    "python train.py --hf-token abcdef1 --lr 1": "abcdef1",
    "Command '['train.py', '--hf-token', 'abcdef1', '--lr']' failed": "abcdef1",
}
NO_SECRETS = (
    "loss is nan", "max_token=512 is too small", "KeyError: 'api_key'", "token id 50257 out of range", "expected 3 tokens: got 5",
    "size mismatch for key.weight: copying a parameter", "unexpected keyword argument 'use_auth_token'",
)  # fmt: skip


@pytest.mark.parametrize("text", [*SECRETS, *NO_SECRETS])
@pytest.mark.parametrize("python", [".".join(map(str, sys.version_info[:2]))], indirect=True)
def test_secrets_in_a_message(run: Ran, text: str) -> None:
    _, (found,) = run("import os; raise ValueError(os.environ['TEXT'])", TEXT=text)
    message = found.chain[0].message
    if text in SECRETS:
        assert SECRETS[text] not in message
        assert "***" in message
    else:
        assert message == text


def test_secrets_in_a_command(tmp_path: Path) -> None:
    folder = tmp_path / "node_0"
    folder.mkdir()
    env = {"PATH": os.defpath, "PYTHONPATH": rankside(), settings.RECORDS_DIR: str(folder), "RANK": "0"}
    words = ["--hf-token", "abcdef1", "--password=abcdef2", "HF_TOKEN=abcdef3", "--lr", "1"]
    subprocess.run([sys.executable, "-c", "pass", *words], env=env, timeout=60, check=True)
    (rank,) = in_order(folder)
    assert rank.argv[3:] == ("--hf-token", "***", "--password=***", "HF_TOKEN=***", "--lr", "1")
