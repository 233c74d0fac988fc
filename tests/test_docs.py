"""The documentation tells the truth: what it names exists, what exists is named, its commands parse, its examples come out as shown."""

from __future__ import annotations

import functools
import importlib
import json
import os
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import helpers
import pytest
from recorded_places import recorded_cases

from ranklaunch.adapters.launchers import LAUNCHERS
from ranklaunch.adapters.launchers.shared.variables import misleading
from ranklaunch.adapters.platforms import PLATFORMS
from ranklaunch.adapters.platforms.shared.base import Place
from ranklaunch.cli import options
from ranklaunch.entrypoints import explain, layout, logs, report, save, stacks, status
from ranklaunch.entrypoints.main import COMMANDS
from ranklaunch.env.features import CHECK_VARIABLES
from ranklaunch.env.job import Job
from ranklaunch.env.settings import PLAN_VARIABLES, SET_FOR_RANKS
from ranklaunch.env.tuning import VARIABLES as TUNE_VARIABLES
from ranklaunch.errors import EXIT_CODES
from ranklaunch.fields import names as names_of
from ranklaunch.plan import megatron
from ranklaunch.plan import model as plan
from ranklaunch.plan.planning import every_variable
from ranklaunch.specs import keys
from ranklaunch.specs.model import KINDS, JobSpec
from ranklaunch.verdict import model as verdict
from testbench import places

ROOT = helpers.ROOT
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.glob("**/*.md"), ROOT / "containers" / "README.md", *ROOT.glob("charts/*/README.md")])
TEXTS = {page: page.read_text(encoding="utf-8") for page in PAGES}
EVERYTHING = "\n".join(TEXTS.values())

FENCE = re.compile(r"^```([a-z]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
INDENTED = re.compile(r"(?:^(?: {4}| {7}).*\n)+", re.MULTILINE)
SPAN = re.compile(r"`([^`\n]+)`")


def page_id(page: Path) -> str:
    return str(page.relative_to(ROOT))


def prose(page: Path) -> str:
    return FENCE.sub("", TEXTS[page])


def spans(page: Path) -> list[str]:
    return SPAN.findall(prose(page))


def code(page: Path) -> Iterator[str]:
    """Every piece of code on a page: blocks with fences, but for what commands print, indented lines, backticks."""
    for block in FENCE.finditer(TEXTS[page]):
        if block[1] != "output":
            yield from block[2].splitlines()
    for block in INDENTED.finditer(prose(page)):
        yield from block[0].splitlines()
    yield from spans(page)


every_page = helpers.for_each({page_id(page): page for page in PAGES})


# What the code makes


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    return places.module("docs/make_reference.py")


def test_made_pages_are_fresh(reference: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert reference.main(["--check"]) == 0, capsys.readouterr().err


def test_the_table_of_places_has_every_platform_that_is_known_and_every_specification(reference: ModuleType) -> None:
    rows = {name: reference._place(name) for name in reference.PLATFORMS}
    assert {name for name, row in rows.items() if "](" not in row[0]} == set()
    assert {row[4].strip("`") for row in rows.values()} - {""} == set(KINDS)


def test_stale_page_is_named_and_made_anew(reference: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "docs").mkdir()
    pages = ("docs/exit-codes.md", "docs/variables.md")
    for page in pages:
        old = reference.MARKED.sub(lambda marked: marked[0].replace("template", "telegram"), TEXTS[ROOT / page])
        (tmp_path / page).write_text(old, encoding="utf-8")
    assert reference.main(["--check"], tmp_path) == 1
    assert capsys.readouterr().err.splitlines() == [f"{page} is stale: run docs/make_reference.py" for page in pages]
    assert reference.main([], tmp_path) == 0
    assert reference.main(["--check"], tmp_path) == 0
    assert [(tmp_path / page).read_text(encoding="utf-8") for page in pages] == [TEXTS[ROOT / page] for page in pages]


def test_unknown_argument_writes_nothing(reference: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert reference.main(["--chek"], tmp_path) == 2
    assert "--check" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_names_shown_as_removed_are_removed(reference: ModuleType) -> None:
    shown = " ".join(reference.MISLEADING).split()
    assert all(re.fullmatch(r"[A-Za-z0-9_]+\*?", name) for name in shown), shown
    examples = sorted(name.replace("*", "X1") for name in shown)
    assert misleading(dict.fromkeys(examples, "1")) == tuple(examples)


def test_made_sections_have_every_variable(reference: ModuleType) -> None:
    assert {variable for _, variables in reference.sections() for variable in variables} == set(every_variable())


# What exists is named


def test_every_variable_and_option_is_named() -> None:
    names = {name for variable in every_variable() for name in variable.names}
    words = {variable.option for variable in every_variable() if variable.option}
    missing = {name for name in names | words if f"`{name}`" not in TEXTS[DOCS / "variables.md"]}
    assert not missing, f"docs/variables.md lacks {missing}: run make generate"


OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
# Options of other programs that pages name in their prose.
OTHERS_OPTIONS = {
    "containers/install.sh": "--bin --prefix --yaml",
    "docker, apptainer": "--build-arg --gpus --nv --shm-size",
    "srun": "--cpu-bind --cpus-per-task --gpus-per-task --kill-on-bad-exit --ntasks --ntasks-per-node --signal",
    "sbatch": "--array --exclusive --mem --open-mode --requeue --wrap",
    "torchrun": "--nnodes --no-python --nproc-per-node --redirects --standalone --tee --virtual-local-rank",
    "mpirun": "--bind-to --prtemca --quiet",
    "msrun": "--join",
    "accelerate, deepspeed": "--autotuning --deepspeed --launcher",
    "megatron": "--global-batch-size --num-attention-heads --use-tp-pp-dp-mapping",
    "ray": "--address --head --resources",
    "py-spy": "--nonblocking",
    "programs of users": "--password --source --x",
}


@functools.cache
def options_of(command: str) -> set[str]:
    """Return the options that `ranklaunch COMMAND --help` prints."""
    done = subprocess.run(
        [sys.executable, "-m", "ranklaunch", *command.split(), "--help"], capture_output=True, text=True, timeout=60, check=True
    )
    return set(re.findall(rf"^  (?:-\w, )?({OPTION.pattern})", done.stdout, re.MULTILINE))


@pytest.mark.processes
@pytest.mark.parametrize("command", [*COMMANDS, *(f"ranktable {verb}" for verb in ("make", "show", "validate", "convert", "diff"))])
def test_every_option_of_a_command_is_named(command: str) -> None:
    named = {option for page in PAGES for line in code(page) for option in OPTION.findall(line)}
    assert options_of(command) - named == set()


@pytest.mark.processes
def test_named_options_exist() -> None:
    known = {option for command in COMMANDS for option in options_of(command)} | {*" ".join(OTHERS_OPTIONS.values()).split()}
    named = {
        match[1]: page_id(page) for page in PAGES for span in spans(page) if (match := re.match(rf"({OPTION.pattern})(?=[ =]|$)", span))
    }
    assert {option: page for option, page in named.items() if option not in known} == {}
    assert {*" ".join(OTHERS_OPTIONS.values()).split()} <= named.keys()


def test_every_command_is_named() -> None:
    assert {name for name in COMMANDS if f"`ranklaunch {name}`" not in EVERYTHING} == set()


def test_every_method_has_a_section() -> None:
    headings = re.findall(r"^## (.*)$", TEXTS[DOCS / "methods.md"], re.MULTILINE)
    helpers.listed_in("the sections (## METHOD) of docs/methods.md", headings, LAUNCHERS)


def test_every_method_has_a_row() -> None:
    rows = re.findall(r"^\| `([a-z]+)`[^|]*\|", TEXTS[DOCS / "methods.md"].partition("\n## ")[0], re.MULTILINE)
    helpers.listed_in("the first table of docs/methods.md", rows, LAUNCHERS)


TWO_NODES = ("plan", "--nodes", "2", "--slots", "8", "--hosts", "h0,h1", "--accelerator", "gpu", "--format", "json")
NODE_OF_COMMAND = {"mpirun": "0"}
WITH_COMMAND = ("torchrun", "msrun", "spawn", "megatron", "accelerate", "pytorch", "mpirun", "tensorflow", "deepspeed", "plain")


@pytest.mark.parametrize("method", WITH_COMMAND)
def test_command_of_each_method_is_what_is_planned(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first block of the section, whose dots stand for words left out."""
    monkeypatch.chdir(tmp_path)
    section = TEXTS[DOCS / "methods.md"].partition(f"\n## {method}\n")[2]
    block = INDENTED.search(section)
    assert block
    shown = block[0].split()
    node = NODE_OF_COMMAND.get(method, "1")
    tp = ["--tp", "2"] if method == "megatron" else []
    env = {"PATH": "/usr/bin", "RANKLAUNCH_PYTHON": "python", "RANKLAUNCH_OPENMPI": "4"}
    data = helpers.call(*TWO_NODES, "--node", node, "--method", method, *tp, "train.py", env=env).json
    command = " ".join(data["processes"][0]["argv"]).replace(f"{tmp_path}/ranklaunch-logs/node_{node}/attempt_1", "LOG")
    pattern = " ".join(shown).replace(" -x NAME ... ", " ... ")
    assert re.fullmatch(".*".join(map(re.escape, pattern.split("..."))), command), command


MAKE_RUN = "add EXAMPLE_{0} := examples/... to Makefile; with an extra, WITH_EXTRA too"


@pytest.mark.processes
@pytest.mark.parametrize("method", LAUNCHERS)
def test_make_run_trains_with_every_method(method: str) -> None:
    """What it would run names the method and an example that is there; the page for a start says so."""
    done = subprocess.run(["make", "-n", "run", f"METHOD={method}"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"{MAKE_RUN.format(method)}: {done.stderr}"
    commands = done.stdout.replace("\\\n", " ").splitlines()
    (words,) = [shlex.split(line) for line in commands if " simulate " in line]
    assert words[words.index("--method") + 1] == method
    example = ROOT / words[words.index("--") + 1]
    assert example.parent == ROOT / "examples"
    assert example.is_file()
    told = ("make run", f"make run METHOD={method}")[method != made_by_default()]
    assert re.search(rf"^    {told}\b", TEXTS[DOCS / "start.md"], re.MULTILINE), f"add a line with {told} to docs/start.md"


def made_by_default() -> str:
    (method,) = re.findall(r"^METHOD +\?= (\w+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    return str(method)


@pytest.mark.processes
def test_make_run_names_the_methods_that_it_knows() -> None:
    done = subprocess.run(["make", "-n", "run", "METHOD=mpi"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "METHOD=mpi: make run knows " in done.stderr
    assert LAUNCHERS.keys() - set(re.findall(r"\w+", done.stderr)) == set()


def test_every_exit_code_has_a_row() -> None:
    rows = dict(re.findall(r"^\| ([0-9]+) \| (.*) \|$", TEXTS[DOCS / "exit-codes.md"], re.MULTILINE))
    assert rows == {str(number): meaning for number, meaning in EXIT_CODES.items()}


def test_every_field_of_a_plan_is_named() -> None:
    data = plan.as_json(helpers.plan(helpers.modelarts(nodes=2), method="spawn"))
    page = TEXTS[DOCS / "plan-json.md"]
    named = {name for cell in re.findall(r"^\| ([a-z_, ]+) \|", page, re.MULTILINE) for name in cell.split(", ")}
    layout = megatron.as_json(megatron.Layout(8, tp=2, ep=2))
    parts = (data, data["job"], data["processes"][0], data["values"][0], data["waits"][0], data["muster"], layout)
    shapes = (
        {name for part in parts for name in part}
        | set(names_of(plan.File))
        | {"fewer_ranks", "trust", "quiet", "may_end", "outlasts", "fails_as", "sessions"}
    )
    assert shapes - named == set()
    assert named - shapes == {"field"}
    assert {name for name in (*data["limits"], *data["job"]["nodes"][0]) if name not in page} == set()
    assert plan.SCHEMA in page


def test_every_field_of_a_verdict_is_named() -> None:
    page = TEXTS[DOCS / "supervision.md"]
    own = {*names_of(verdict.Verdict)} - {"more", "judgement"}  # in whose place stand the keys of plugins, and the judgement's
    said = {*own, *names_of(verdict.Judgement), "stop", "hang"}
    names = [*said, *names_of(verdict.Culprit), *names_of(verdict.Victim)]
    assert {name for name in names if not re.search(rf'"{name}"', page)} == set()
    culprit = {f"culprit.{name}" for name in names_of(verdict.Culprit)}
    assert {name for name in culprit if name not in page} == set()
    assert verdict.SCHEMA in page


def test_every_event_is_named() -> None:
    """The sources say which events there are: each is written with its name as a literal."""
    sources = [*ROOT.glob("src/ranklaunch/*/**/*.py"), *ROOT.glob("entrypoints/*.py")]
    written = {name for path in sources for name in re.findall(r"\.event\(\s*\"([a-z ]+)\"", path.read_text(encoding="utf-8"))}
    section = TEXTS[DOCS / "supervision.md"].partition("## events.jsonl")[2].partition("\n## ")[0]
    rows = set(re.findall(r"^\| ([a-z ]+) \|", section, re.MULTILINE)) - {"event"}
    assert rows == written


def test_templates_page_knows_the_job() -> None:
    page = TEXTS[DOCS / "templates.md"]
    names = set(names_of(Job)) | {name for name, value in vars(Job).items() if isinstance(value, (property, functools.cached_property))}
    assert {name for name in names if f"job.{name}" not in page} == set()
    assert {name for name in re.findall(r"(?<!/)\bjob\.([a-z_]+)", page) if name not in names | {"nope"}} == set()
    shipped = {str(path.relative_to(ROOT)) for path in ROOT.glob("templates/**/*.j2")}
    helpers.listed_in("the table of docs/templates.md", re.findall(r"`(templates/[^`]+)`", page), shipped)


# What is named exists

ABROAD = ("http://", "https://")
TOPS = {path.name for path in ROOT.iterdir()} - {".git"}


@every_page
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if target.startswith(ABROAD):
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        assert path.exists(), f"{page_id(page)} links to {target}"
        if anchor:
            assert anchor in anchors(path), f"{page_id(page)} links to {target}; that page has {sorted(anchors(path))}"


@functools.cache
def anchors(page: Path) -> set[str]:
    """Of its headings, as GitHub makes them, and those that it has itself."""
    text = prose(page)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    made = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return made.union(re.findall('<a id="(.{1,80}?)">', text))


@every_page
def test_named_files_exist(page: Path) -> None:
    for span in spans(page):
        path = span.split()[-1] if span.startswith(".venv/bin/python ") else span
        if re.fullmatch(r"[\w./<>*-]+", path) and path.split("/")[0] in TOPS and not path.startswith(".venv"):
            pattern = re.sub(r"<[a-z]+>", "*", path).rstrip("/")
            assert any(ROOT.glob(pattern)), f"{page_id(page)} names {span}"


@every_page
def test_named_objects_exist(page: Path) -> None:
    for span in spans(page):
        if re.fullmatch(r"ranklaunch(\.[A-Za-z_]\w*)+", span):
            assert resolves(span), f"{page_id(page)} names {span}"


def resolves(name: str) -> bool:
    module, *rest = name.split(".")
    found: object = importlib.import_module(module)
    for part in rest:
        module += f".{part}"
        if not hasattr(found, part):
            try:
                importlib.import_module(module)
            except ImportError:
                return False
        found = getattr(found, part)
    return True


@every_page
def test_named_variables_exist(page: Path) -> None:
    known = {*SET_FOR_RANKS, *(name for variable in every_variable() for name in variable.names)}
    for span in spans(page):
        if re.fullmatch(r"RANKLAUNCH_[A-Z_]+[A-Z](=\S*)?", span):
            assert span.partition("=")[0] in known, f"{page_id(page)} names {span}"


NO_KEYS = {"slurm.exclusive", "hang.json", "tf.distribute.Server", "tf.compat.v1", "trainer.nnodes"}  # a wrong key, a file, others' names
KEYS = dict(keys.every(JobSpec))


@every_page
def test_named_keys_of_values_exist(page: Path) -> None:
    """A key, a group of keys, or an entry of a map."""
    groups = {name.split(".")[0] for name in KEYS if "." in name}
    for span in spans(page):
        match = re.match(r"([a-z]\w*(?:\.[a-zA-Z]\w*)+)(?=$|:| |=)", span)
        if match and match[1].split(".")[0] in groups and match[1] not in NO_KEYS:
            assert any(f"{name}.".startswith(f"{match[1]}.") or f"{match[1]}.".startswith(f"{name}.") for name in KEYS), match[1]


@every_page
def test_make_targets_exist(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][\w.-]*):", makefile, re.MULTILINE))
    for line in code(page):
        for target in re.findall(r"^\s*make ([a-z][\w.-]*)", line):
            assert target in targets, f"{page_id(page)}: {line}"
    methods = set(re.findall(r"^EXAMPLE_(\w+)", makefile, re.MULTILINE))
    assert set(re.findall(r"make run METHOD=(\w+)", TEXTS[page])) <= methods


@every_page
def test_commands_exist(page: Path) -> None:
    for line in code(page):
        for command in re.findall(r"\branklaunch ([a-z]+)", line):
            assert command in COMMANDS, f"{page_id(page)}: {line}"


@every_page
def test_command_lines_parse(page: Path) -> None:
    for line in code(page):
        match = re.match(r"(?:\s*|\$ )ranklaunch ([a-z]+) (.+)$", line)
        if match and match[1] not in ("ranktable", "layout") and "..." not in line:  # their lines are run as they are, below
            parser = parser_of(match[1])
            _, program = parser.split(shlex.split(match[2], comments=True))
            of_body = match[1] == "plan" and "--spec" in match[2]  # whose command has the program
            of_body = of_body or (match[1] == "explain" and "--find" in match[2])  # in place of a log
            assert program or of_body or line in spans(page), f"{page_id(page)} has no program: {line}"  # prose may name options alone


def parser_of(command: str) -> options.Parser:
    of_logs = {"explain": explain, "logs": logs, "report": report, "save": save, "stacks": stacks, "status": status}
    if command in of_logs:
        return options.Parser(command, "", "", of_logs[command].OPTIONS)
    own = {"plan": PLAN_VARIABLES, "check": CHECK_VARIABLES, "tune": TUNE_VARIABLES}
    return options.JobParser(command, "", "", own.get(command, ()))


def commands_of(page: str, *names: str) -> list[list[str]]:
    """Return the whole commands of ranklaunch on a page, by the names of its commands, as words without ranklaunch."""
    found = re.findall(rf"^ {{4}}ranklaunch ((?:{'|'.join(names)}) .+)$", TEXTS[DOCS / page], re.MULTILINE)
    return [shlex.split(line) for line in found]


@pytest.mark.parametrize("words", commands_of("ray.md", "spec", "plan", "run"), ids=lambda words: " ".join(words[:4]))
def test_a_job_of_ray_is_planned_and_specified_as_its_page_says(words: list[str], tmp_path: Path) -> None:
    """Method ray everywhere; `run` is planned, on two nodes of the page."""
    nodes = ("--nodes", "2", "--node", "0", "--hosts", "h0,h1", "--slots", "8", "--accelerator", "gpu", "--log-dir", str(tmp_path))
    given = ["plan", *nodes, *words[1:]] if words[0] == "run" else words
    found = helpers.call(*given)
    assert found.code == 0, found.err
    assert "will not start" not in found.err
    assert re.search(
        r'RANKLAUNCH_METHOD(=|", "value": "|": ")ray\b' if words[0] == "spec" else r"^method +ray: option", found.out, re.MULTILINE
    )


def test_the_page_of_ray_has_a_job_for_each_of_its_places() -> None:
    assert {words[1] for words in commands_of("ray.md", "spec")} == {"modelarts", "volcano", "slurm"}
    for kind in ("jobset", "job", "trainjob"):
        (words,) = (words for words in commands_of("ray.md", "spec") if words[1] == "volcano")
        assert helpers.call("spec", kind, *words[2:]).code == 0


# What is shown comes out


def blocks(page: Path) -> list[str]:
    return [block[2] for block in FENCE.finditer(TEXTS[page])]


def test_the_layout_on_its_page_is_what_comes_out(capsys: pytest.CaptureFixture[str]) -> None:
    command, *expected = block_with(ROOT / "docs/layouts.md", "$ ranklaunch layout").splitlines()
    assert layout.main(shlex.split(command)[3:], {}) == 0
    assert capsys.readouterr().out.splitlines()[: len(expected) - 1] == expected[:-1]


def block_with(page: Path, start: str) -> str:
    found = [block for block in blocks(page) if block.startswith(start)]
    assert len(found) == 1, f"{page_id(page)} has {len(found)} blocks that start with {start!r}"
    return found[0]


def assert_shown(block: str, output: str) -> None:
    """Each shown line stands in the output, in this order. A line of dots stands for lines left out, dots in a line for a part of it."""
    lines = iter(output.splitlines())
    for shown in block.splitlines():
        if shown != "...":
            pattern = ".*".join(map(re.escape, shown.split("...")))
            assert any(re.fullmatch(pattern, line) for line in lines), f"not in the output, or not in this order: {shown}\n{output}"


def test_plan_of_the_page_for_a_start_is_real(tmp_path: Path) -> None:
    (tmp_path / "job.env").write_text(block_with(DOCS / "start.md", "MA_NUM_HOSTS="), encoding="utf-8")
    command, _, shown = block_with(DOCS / "start.md", "$ ranklaunch plan").partition("\n")
    words = shlex.split(command)[2:]
    words[words.index("--env-file") + 1] = str(tmp_path / "job.env")
    result = helpers.call(*words[:1], "--root", str(tmp_path), *words[1:])
    assert result.code == 0, result.err
    assert_shown(shown, result.out)


# ModelArts

SAMPLES = ROOT / "examples" / "environments"
BOOT = 'ranklaunch run -- "${MA_JOB_DIR}"/code/train.py --epochs 3'


@every_page
def test_the_boot_command_of_modelarts_is_spelled_in_one_way(page: Path) -> None:
    for line in code(page):
        if "ranklaunch run" in line and "MA_JOB_DIR" in line:
            boot = line.strip().rpartition(" && exec ")[2]  # after the lines of modelarts.setup
            assert boot == BOOT, f"{page_id(page)}: {line}"


def test_no_example_sets_a_name_that_modelarts_keeps_for_itself() -> None:
    """Its FAQ modelarts_05_0093: users may not set names that begin with MA_. Golden files show that the old names are still read."""
    of_users = {name for v in every_variable() for name in v.names if name.startswith("MA_") and v.setter(name) == "user"}
    assert "MA_RUN_METHOD" in of_users
    sets = re.compile(rf"\b({'|'.join(sorted(of_users))})\b[\"']?[ ]*[=:]")
    examples = [path for folder in ("examples", "charts", "containers") for path in (ROOT / folder).rglob("*") if path.is_file()]
    pages = [page for page in PAGES if page.name not in ("CONTRIBUTING.md", "CHANGELOG.md")]
    texts = {path: path.read_text(encoding="utf-8", errors="replace") for path in (*examples, *pages)}
    assert {str(path.relative_to(ROOT)): sets.findall(text) for path, text in texts.items() if sets.search(text)} == {}


@pytest.mark.parametrize(("name", "nodes", "index"), [("modelarts-1-node.env", 1, 0), ("modelarts-4-nodes.env", 4, 2)])
def test_sample_environments_of_modelarts_are_whole(name: str, nodes: int, index: int, tmp_path: Path) -> None:
    """The page shows the file, the file makes a plan of every node, and nothing in it is refused or left aside."""
    sample = SAMPLES / name
    assert f"```\n{sample.read_text(encoding='utf-8')}```\n" in TEXTS[DOCS / "modelarts.md"]
    words = ("plan", "--root", str(tmp_path), "--format", "json", "--env-file", str(sample))
    result = helpers.call(*words, "--all-nodes", "--", "train.py")
    assert result.code == 0, result.err
    found = json.loads(result.out)
    assert [each["job"]["node_index"] for each in found] == list(range(nodes))
    for each in found:
        assert (each["platform"], each["method"], each["job"]["accelerator"]) == ("modelarts", "torchrun", "npu")
        assert (each["job"]["world_size"], each["warnings"]) == (8 * nodes, [])
    one = json.loads(helpers.call(*words, "--", "train.py").out)
    assert one["job"]["node_index"] == index


def test_a_job_of_modelarts_is_planned_as_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    section = TEXTS[DOCS / "modelarts.md"].partition("\n### Plan the job before it is sent\n")[2]
    spec, plan_of_it = (shlex.split(line) for line in re.findall(r"^    ranklaunch (.*)$", section.partition("\n## ")[0], re.MULTILINE))
    assert spec[-2] == ">"
    body = helpers.call(*spec[:-2])
    assert body.code == 0, body.err
    (tmp_path / spec[-1]).write_text(body.out, encoding="utf-8")
    result = helpers.call(*plan_of_it, "--format", "json")
    assert result.code == 0, result.err
    assert [each["processes"][0]["argv"][-1] for each in json.loads(result.out)] == ["/app/train.py"] * 2


@pytest.mark.parametrize("section", ["torchrun", "msrun", "Rank table", "Horovod"])
def test_each_side_by_side_is_what_ranklaunch_plans(section: str, tmp_path: Path) -> None:
    text = TEXTS[DOCS / "modelarts-before-after.md"].partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    rows = "| exits with 7 |", "| the job is stopped |", "| logs |", "| retries |"
    assert all(row.strip("| ") in text for row in rows)
    (block,) = [found[2] for found in FENCE.finditer(text)]
    command, _, shown = block.partition("\n")
    words = shlex.split(command)[2:]
    words[words.index("--env-file") + 1] = str(ROOT / words[words.index("--env-file") + 1])
    result = helpers.call(words[0], "--root", str(tmp_path), *words[1:])
    assert result.code == 0, result.err
    assert_shown(shown, result.out)


def test_cann_s_logs_are_where_the_pages_say(tmp_path: Path) -> None:
    page = TEXTS[DOCS / "modelarts.md"].partition("\n### CANN's own logs\n")[2].partition("\n## ")[0]
    folders = dict(re.findall(r"^\| (ranktable|any other) \| attempt_K/(\S+?),", page, re.MULTILINE))
    assert folders == {"ranktable": "ascend/rank_R", "any other": "ascend"}
    (row,) = re.findall(r"^\| `ASCEND_PROCESS_LOG_PATH` \|.*$", TEXTS[DOCS / "ranktables.md"], re.MULTILINE)
    assert all(f"attempt_K/{folder} " in row for folder in folders.values())
    for name in ("ranktables.md", "evidence.md"):
        assert "modelarts.md#canns-own-logs" in TEXTS[DOCS / name]
    sample = ("--root", str(tmp_path), "--format", "json", "--env-file", str(SAMPLES / "modelarts-4-nodes.env"))
    logs = "/home/ma-user/modelarts/log/attempt_1"

    def set_to(method: str, *words: str) -> set[str]:
        result = helpers.call("plan", *sample, "--method", method, *words, "--", "train.py")
        assert result.code == 0, result.err
        found = json.loads(result.out)
        common = {each["name"]: each["value"] for each in found["recorders"]["variables"]}
        return {{**common, **process["env"]}.get("ASCEND_PROCESS_LOG_PATH", "") for process in found["processes"]}

    assert set_to("ranktable", "--rank-table", "/user/config") == {f"{logs}/ascend/rank_{rank}" for rank in range(16, 24)}
    assert {path for method in ("torchrun", "msrun", "spawn") for path in set_to(method)} == {f"{logs}/ascend"}


def test_codes_of_cann_that_the_page_names_can_be_searched() -> None:
    """By the page, and by the command."""
    codes = re.findall(r"ranklaunch explain --find (\S+?)`", TEXTS[DOCS / "modelarts.md"])
    assert {"507054", "EI0002"} <= set(codes)
    for code_of_cann in codes:
        assert f"`{code_of_cann}`: [" in TEXTS[DOCS / "known-errors.md"]
        found = helpers.call("explain", "--find", code_of_cann)
        assert (found.code, "What to do: " in found.out) == (0, True), code_of_cann


SIDES = {
    "torchrun": ("nnodes", "nproc_per_node", "node_rank", "master_addr"),
    "accelerate": ("num_machines", "num_processes", "machine_rank", "main_process_ip"),
    "deepspeed": ("master_addr",),
    "mpirun": ("np", "bind-to"),
}


@pytest.mark.processes
@pytest.mark.parametrize("method", SIDES)
def test_both_sides_of_a_script_for_slurm_start_the_same(method: str, tmp_path: Path) -> None:
    """Options of the launcher on node 0, and the program: as bash makes them of today's side, and as ranklaunch plans the other."""
    section = (DOCS / "slurm.md").read_text(encoding="utf-8").partition(f"\n### {method}\n")[2].partition("\n#")[0]
    today, ours = (textwrap.dedent(block) for block in re.findall(r"(?:^    .*\n)+", section, re.MULTILINE))
    asked = ("plan", "--slurm", "nodes=4,gpus=8", "--format", "json", *shlex.split(ours)[3:])
    plan = helpers.call(*asked, env={"PATH": "/usr/bin:/bin"}).json
    assert (shlex.split(ours)[:3], plan["method"], plan["job"]["world_size"]) == (["srun", "ranklaunch", "run"], method, 32)

    programs = {"srun": 'exec "$@"', "scontrol": "printf 'node%s\\n' 1 2 3 4", method: 'printf \'%s\\n\' "$0" "$@" >argv'}
    for name, body in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    head = 'first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)\n'
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_NODEID": "0", "SLURM_JOB_NODELIST": "node[1-4]"}
    subprocess.run(["bash", "-euc", head + today], env=env, cwd=tmp_path, check=True, timeout=60)
    argv = (tmp_path / "argv").read_text().splitlines()
    by_us = plan["processes"][0]["argv"]
    assert {name: option(argv, name) for name in SIDES[method]} == {name: option(by_us, name) for name in SIDES[method]}
    assert argv[-3:] == by_us[-3:] == ["train.py", "--epochs", "3"]
    if method == "deepspeed":
        (file,) = (file["text"] for file in plan["files"] if file["path"].endswith("/hostfile"))
        assert (tmp_path / "hostfile").read_text().split() == file.split()


def option(argv: list[str], name: str) -> str:
    """Return the value of -name VALUE, --name VALUE or --name=VALUE."""
    words = [word for each in argv for word in (each.partition("=")[::2] if each.startswith("-") and "=" in each else (each,))]
    return words[next(i for i, word in enumerate(words) if word.lstrip("-") == name) + 1]


# Guides by framework, and from other launchers

GUIDES = sorted((DOCS / "frameworks").glob("*.md"))
COMMANDS_OF_GUIDES = re.compile(r"^ +(?:[A-Z_]+=(?:\"[^\"]*\"|\S+) )?ranklaunch run (.*)$", re.MULTILINE)


@pytest.mark.parametrize("page", GUIDES, ids=[page.stem for page in GUIDES])
def test_guides_of_frameworks_are_what_ranklaunch_does(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans and refusals come out as shown, each command can be planned, and the failure is the known error that the page names."""
    monkeypatch.chdir(tmp_path)
    in_fences = {block[1]: block[2] for block in FENCE.finditer(TEXTS[page])}
    (tmp_path / "ds.json").write_text(in_fences.get("json", "{}"), encoding="utf-8")
    (tmp_path / "pretrain.sh").write_text("".join(re.findall(r"^    (torchrun .*\n.*\n)", TEXTS[page], re.MULTILINE)), encoding="utf-8")
    env = {"PATH": "/usr/bin:/bin", "RANKLAUNCH_PYTHON": "python", "RANKLAUNCH_OPENMPI": "4"}
    plans = [block for block in blocks(page) if block.startswith("$ ranklaunch plan")]
    assert plans
    for block in plans:
        command, _, shown = block.partition("\n")
        result = helpers.call(*shlex.split(command)[2:], env=env)
        assert result.code == (78 if shown.startswith("ranklaunch: ") else 0), result.err
        assert_shown(shown, result.out + result.err)
    commands = COMMANDS_OF_GUIDES.findall(TEXTS[page])
    assert commands
    for command in commands:
        result = helpers.call("plan", *shlex.split(command, comments=True), env=env)
        assert result.code == 0, result.err
    if "text" in in_fences and "known-errors.md#" in TEXTS[page]:
        (tmp_path / "rank_0.log").write_text(in_fences["text"], encoding="utf-8")
        (name,) = set(re.findall(r"known-errors\.md#([\w-]+)", TEXTS[page]))
        assert f"  {name} (" in helpers.call("explain", "rank_0.log").out


PYTORCHJOB = {"PET_NNODES": "4", "PET_NODE_RANK": "1", "PET_NPROC_PER_NODE": "8", "PET_MASTER_ADDR": "llm-master-0"}
BY_HAND = ["--nodes", "4", "--slots", "8", "--hosts", "h0,h1,h2,h3", "--node", "1"]


@pytest.mark.parametrize(
    ("section", "env", "words", "started"),
    [
        ("torchrun in sbatch", {}, ["--slurm", "nodes=4,gpus=8"], "--nnodes=4 --nproc_per_node=8"),
        ("PyTorchJob", PYTORCHJOB, [], "--nnodes=4 --nproc_per_node=8 --node_rank=1 --master_addr=llm-master-0"),
        ("A DeepSpeed hostfile", {"RANKLAUNCH_NODE": "1"}, [], "--no_ssh --node_rank 1 --master_addr h0"),
        ("msrun_launcher.sh", {}, BY_HAND, "--worker_num=32 --local_worker_num=8 --master_addr=h0 --node_rank=1 --master_port=8118"),
    ],
)
def test_commands_of_the_page_for_a_migration_start_the_job(
    section: str, env: dict[str, str], words: list[str], started: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hostfile").write_text("".join(f"h{i} slots=8\n" for i in range(4)), encoding="utf-8")
    (tmp_path / "ds.json").write_text("{}", encoding="utf-8")
    text = TEXTS[DOCS / "migrate.md"].partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    listed = [" ".join(json.loads(line)) for line in re.findall(r"^command: (.*)$", text, re.MULTILINE)]
    command = next(line for line in [*listed, *text.splitlines()] if re.match(r"\s*(?:srun )?ranklaunch run ", line))
    planned = helpers.call(
        "plan", "--format", "json", *words, *shlex.split(command.partition(" run ")[2]), env={"PATH": "/usr/bin:/bin", **env}
    )
    assert planned.code == 0, planned.err
    assert planned.json["job"]["world_size"] == 32
    assert started in " ".join(planned.json["processes"][0]["argv"])


def test_plan_as_json_is_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command, _, shown = block_with(DOCS / "plan-json.md", "$ ranklaunch plan").partition("\n")
    result = helpers.call(*shlex.split(command)[2:], env={"PATH": "/usr/bin"})
    assert result.code == 0, result.err
    assert_shown(shown, result.out)


def test_session_of_rank_tables_page_is_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    steps = block_with(DOCS / "ranktables.md", "$ ranklaunch ranktable").split("$ ")[1:]
    for step in steps:
        command, _, shown = step.partition("\n")
        result = helpers.call(*shlex.split(command)[1:])
        assert result.out + result.err == shown, command
    assert len(steps) == 6


@pytest.mark.parametrize("start", ["$ ranklaunch run --method torchrn", "$ env MA_NUM_HOSTS=two"])
def test_errors_of_exit_codes_page_are_real(start: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command, _, shown = block_with(DOCS / "exit-codes.md", start).partition("\n")
    words = shlex.split(command)
    env = dict(word.split("=", 1) for word in words if re.match("[A-Z_]+=", word))
    result = helpers.call("plan", *words[words.index("run") + 1 :], env=env)
    assert result.code == 78
    assert_shown(shown, result.err)


def test_example_of_templates_page_is_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = DOCS / "templates.md"
    folder = tmp_path / "templates"
    (folder / "spawn").mkdir(parents=True)
    (folder / "spawn" / "command.j2").write_text(block_with(page, "nice"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    (command,) = re.findall(r"^    ranklaunch (plan --templates .*)$", TEXTS[page], re.MULTILINE)
    words = shlex.split(command)
    words[words.index("--templates") + 1] = str(folder)
    result = helpers.call(*words, env={"RANKLAUNCH_PYTHON": "python"})
    assert result.code == 0, result.err
    assert "nice -n 5 python -u train.py 'a b'" in result.out
    assert "`nice -n 5 python -u train.py 'a b'`" in TEXTS[page]


@pytest.mark.processes
def test_failing_job_of_the_page_for_a_start_is_real(tmp_path: Path) -> None:
    (program,) = [block[2] for block in FENCE.finditer(TEXTS[DOCS / "start.md"]) if block[1] == "python"]
    (tmp_path / "fails.py").write_text(program, encoding="utf-8")
    command, _, shown = block_with(DOCS / "start.md", "$ ranklaunch run").partition("\n")
    words = [*shlex.split(command)[2:-1], "--python", sys.executable, "fails.py"]
    env = {name: value for name, value in os.environ.items() if name != "RANKLAUNCH_RANKSIDE"}
    done = subprocess.run(
        [sys.executable, "-m", "ranklaunch", *words], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    ranks, own = shown[: shown.index("ranklaunch: ")], shown[shown.index("ranklaunch: ") :]
    assert_shown(own, done.stderr)
    for rank in range(3):  # each rank's lines have an order, the ranks have none
        tagged = [line for line in ranks.splitlines() if line.startswith(f"[rank {rank}] ")]
        assert_shown("\n".join(tagged), done.stdout)
    tree = block_with(DOCS / "start.md", "logs/attempt_1/").splitlines()[1:]
    assert {line.split()[0].rstrip("/") for line in tree} == {path.name for path in (tmp_path / "logs/attempt_1").iterdir()}


# The checklists of CONTRIBUTING.md

LAUNCHER_FILES = ("adapters/launchers/<name>.py", "templates/<name>/command.j2", "tests/golden/<name>/")
IN_PLACES = {case["platform"] for case in recorded_cases()}
PLATFORM_FILES = ("adapters/platforms/<name>.py", "tests/golden/<name>/")


def checklist(title: str) -> str:
    return TEXTS[ROOT / "CONTRIBUTING.md"].partition(f"## {title}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize(
    ("title", "files", "names"),
    [
        ("Add a launcher", LAUNCHER_FILES, list(LAUNCHERS)),
        ("Add a platform", PLATFORM_FILES, [row.name for row in PLATFORMS.rows.values() if row.kind and row.name not in IN_PLACES]),
    ],
    ids=["launcher", "platform"],
)
def test_checklist_is_what_every_adapter_has(title: str, files: tuple[str, ...], names: list[str]) -> None:
    steps = checklist(title)
    assert sorted({span for span in SPAN.findall(steps) if "<name>/" in span or "<name>." in span}) == sorted(files)
    for name in names:
        for file in files:
            assert (ROOT / file.replace("<name>", name)).exists(), f"make {file.replace('<name>', name)} (CONTRIBUTING.md, {title})"


def test_lists_that_checklists_name_are_there() -> None:
    steps = checklist("Add a launcher") + checklist("Add a platform")
    sources = [path for folder in ("adapters", "src", "tests") for path in (ROOT / folder).glob("**/*.py")]
    there = {name for path in sources for name in re.findall(r"^ *([A-Z_]+)(?::.*)? = ", path.read_text(encoding="utf-8"), re.MULTILINE)}
    assert set(re.findall("`([A-Z_]+[A-Z])`", steps)) - there == set()


def test_the_checklist_names_what_the_protocol_of_platforms_asks_for() -> None:
    members = {name for name in [*vars(Place), *Place.__annotations__] if not name.startswith("_")}
    assert {name for name in members if f"`{name}`" not in checklist("Add a platform")} == set()


def test_the_checklist_names_the_smallest_launcher() -> None:
    folder = ROOT / "adapters" / "launchers"
    (copied,) = re.findall(r"`adapters/launchers/([a-z_]+)\.py`", checklist("Add a launcher").partition("2. ")[0])
    sizes = {name: len((folder / f"{name}.py").read_text(encoding="utf-8").splitlines()) for name in LAUNCHERS}
    assert sizes[copied] <= 1.5 * min(sizes.values()), f"add a smaller one to CONTRIBUTING.md than {copied}"
