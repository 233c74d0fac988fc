"""Facts that a job's nodes compare before they start ranks: with different facts the ranks cannot meet.

Facts are read from files, without starting a program, so that `plan` can show them. Versions come from the folders that pip leaves beside a
package (the Python packaging specification "Recording installed projects"), from torch/version.py, and from the files of CANN's installer.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterator, Mapping

from ranklaunch.env import settings
from ranklaunch.env.job import Job, Node, hosts_of, remembered
from ranklaunch.env.reader import Reader
from ranklaunch.env.settings import CANN_FOLDERS
from ranklaunch.files import Files, absolute, folder_of, join, text_of, which
from ranklaunch.plan.model import TABLE, Plan, Watch
from ranklaunch.verdict import folders

PACKAGES = (
    "torch", "torch_npu", "mindspore", "tensorflow", "tensorflow_cpu", "tensorflow_gpu", "tensorflow_intel", "tensorflow_cpu_aws",
    "tf_nightly", "deepspeed", "accelerate", "horovod", "mpi4py", "jax", "jaxlib", "ray",
)  # fmt: skip
# Facts that must always agree: otherwise two ranks have one number, or ranks never meet.
FIXED = ("method", "nodes", "world_size", "slots", "tasks", "master_port", "route_plan")
MOST_PROGRAM_BYTES = 16 * 1024 * 1024
MOST_VERSION_BYTES = 64 * 1024
LONGEST = 200  # characters of a fact; a longer fact is compared by its digest


def refuse_allowed(reader: Reader, fixed: list[str]) -> None:
    """Report a problem for facts that the user allows to differ although the ranks then cannot meet. fixed: their names."""
    if fixed:
        hint = ""
        if {"slots", "world_size"} & {*fixed}:
            hint = f"; for nodes of different sizes, set {settings.SLOTS.both} to a list, such as 2,1, on every node"
        reader.problem(f"{reader.described(settings.MUSTER_ALLOW)}: ranks cannot meet where the nodes differ in {', '.join(fixed)}{hint}")


def of_job(job: Job, method: str) -> dict[str, str]:
    """Return the shape of the job: method, nodes, ranks, slots, tasks, hosts."""
    nodes = job.nodes
    facts = {
        "method": method,
        "nodes": str(len(nodes)),
        "world_size": str(job.world_size),
        "slots": ",".join(str(node.slots) for node in nodes) if job.slots_differ else f"{nodes[0].slots} on each",
        "accelerator": job.accelerator,
    }
    if job.has_tasks or not nodes[0].slots:  # a ps, or a node that only launches, has another accelerator than the rest, or none
        del facts["accelerator"]
    if job.has_tasks:
        facts["tasks"] = ", ".join(f"{count} {task}" for task, count in Counter(node.task for node in job.nodes).items())
    return {**{name: short(value) for name, value in facts.items()}, **_hosts(nodes)}


@remembered
def _hosts(nodes: tuple[Node, ...]) -> dict[str, str]:
    """Return the hosts as a fact if all are known."""
    hosts = [f"{node.host} {node.port}" if node.port else node.host for node in nodes]
    return {"hosts": short(",".join(hosts))} if all(hosts_of(nodes)) else {}


def of_table(plan: Plan) -> dict[str, str]:
    """Return the digest of the rank table that ranklaunch writes for the ranks, if it writes one."""
    path = join(folders.restart(folders.attempt(plan.job.log_dir, plan.job.attempt), plan.job.restart), folders.RANK_TABLE)
    texts = [file.text for file in plan.files if file.path == path]
    return {TABLE: digest(texts[0])} if texts else {}


def of_policy(plan: Plan) -> dict[str, str]:
    """Return the rules for restarts in place and for hangs, if they are not the defaults. Nodes decide both together."""
    facts = {}
    if plan.rounds:
        never = ",".join(map(str, plan.rounds.never))
        facts["restarts"] = f"{plan.rounds.most}{f', never after {never}' if never else ''}"
    watch, usual = plan.watch, Watch()
    if (watch.hang, watch.hang_s, watch.first_step_s) != (usual.hang, usual.hang_s, usual.first_step_s):
        facts["hang"] = f"{watch.hang} after {watch.hang_s:g} s, {watch.first_step_s:g} s before the first step"
    return {name: short(value) for name, value in facts.items()}


def of_program(job: Job, files: Files, cwd: str) -> dict[str, str]:
    """Return the digest of the program's file; nothing for a module, or for a file that does not exist (yet)."""
    if job.program.module or not (job.program.is_python or job.program.is_shell):
        return {}
    text = _text(files, absolute(job.program.path, cwd), MOST_PROGRAM_BYTES)
    return {} if text is None else {"program": f"{job.program.path.rpartition('/')[2]} {digest(text)}"}


def of_versions(job: Job, files: Files, env: Mapping[str, str], cwd: str, ascend: str) -> dict[str, str]:
    """Return the versions of the user's Python, its packages and CANN. ascend: CANN's folder from the environment, or ""."""
    facts: dict[str, str] = {}
    for version, folder in reversed(_folders(job, files, env, cwd)):  # a package hides packages of the same name in later folders
        facts["Python"] = version
        facts.update(_packages(files, folder))
    for folder in (ascend, *CANN_FOLDERS):
        version = _cann(files, folder) if folder else ""
        if version:
            facts["CANN"] = version
            break
    return facts


def beside(files: Files, program: str) -> dict[str, str]:
    """Return the versions of the packages beside a script's interpreter, which the script's first line names."""
    first = (_text(files, program, MOST_VERSION_BYTES) or "").partition("\n")[0]
    python = re.match(r"#!\s*(/\S*/python[0-9.]*)", first)
    facts: dict[str, str] = {}
    for _, folder in reversed(list(_site_packages(files, python[1] if python else program, {}))):
        facts.update(_packages(files, folder))
    return facts


def is_older(version: str, least: str) -> bool:
    """Return True if a version is older than `least`, by the numbers at their beginnings. A version without numbers is not older."""
    numbers = [re.findall(r"[0-9]+", re.match(r"[0-9.]*", text)[0]) for text in (version, least)]  # type: ignore[index]
    one, other = (list(map(int, parts)) for parts in numbers)
    return bool(one) and (one + [0] * len(other))[: len(other)] < other


def source(path: str, job: Job, files: Files, env: Mapping[str, str], cwd: str) -> str:
    """Return the text of a file among the packages of the user's Python, "" if it does not exist. path: below the packages' folder."""
    texts = (_text(files, join(folder, path), MOST_VERSION_BYTES) for _, folder in _folders(job, files, env, cwd))
    return next((text for text in texts if text is not None), "")


def has(path: str, job: Job, files: Files, env: Mapping[str, str], cwd: str) -> bool:
    """Return True if a file exists among the packages of the user's Python. path: below the packages' folder."""
    return any(files.exists(join(folder, path)) for _, folder in _folders(job, files, env, cwd))


def _folders(job: Job, files: Files, env: Mapping[str, str], cwd: str) -> list[tuple[str, str]]:
    """Return each folder of packages with Python's version, in the order of Python's search."""
    python = job.python if "/" in job.python else which(job.python, env.get("PATH", ""), files)
    packages = list(_site_packages(files, absolute(python, cwd), env)) if python else []
    in_pythonpath = [absolute(folder, cwd) for folder in env.get("PYTHONPATH", "").split(":") if folder]
    return [*((packages[0][0], folder) for folder in in_pythonpath if packages and files.is_dir(folder)), *packages]


def _site_packages(files: Files, python: str, env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield version and folder for each folder of packages that Python's module site adds.

    These are the folders beside an interpreter (of a virtual environment, conda or the system), pip's folder for one user, and for a
    virtual environment with system packages also the system's. Paths in .pth files are ignored.
    """
    prefix = folder_of(folder_of(python))
    version = _minor(files, prefix, python)
    if not version:
        return
    text = text_of(files, join(prefix, "pyvenv.cfg"), MOST_VERSION_BYTES)
    venv = {name.strip().lower(): value.strip() for name, _, value in (line.partition("=") for line in text.split("\n"))}
    if text:
        yield from _beside(files, prefix, version)
        if venv.get("include-system-site-packages", "").lower() != "true":
            return
    of_user = join(env.get("PYTHONUSERBASE") or join(env.get("HOME", ""), ".local"), f"lib/python{version}/site-packages")
    if of_user.startswith("/") and not env.get("PYTHONNOUSERSITE") and files.is_dir(of_user):
        yield version, of_user
    yield from _beside(files, folder_of(venv.get("home", "")) if text else prefix, version)


def _beside(files: Files, prefix: str, version: str) -> Iterator[tuple[str, str]]:
    """Yield the folders below a prefix. As on Debian, pip's folder in /usr/local comes before those of the system's packages."""
    for lib in (f"{prefix}/local/lib", f"{prefix}/lib64", f"{prefix}/lib"):
        for name in (f"python{version}/site-packages", f"python{version}/dist-packages", "python3/dist-packages"):
            if files.is_dir(join(lib, name)):
                yield version, join(lib, name)


def _minor(files: Files, prefix: str, python: str) -> str:
    """Return the version, such as 3.11, from the interpreter's name or the newest folder beside it; "" if it is unknown."""
    in_name = re.search(r"python(3\.[0-9]{1,2})$", python)
    if in_name:
        return in_name[1]
    names = [name for lib in ("lib", "lib64") for name in files.names(f"{prefix}/{lib}")]
    minors = [int(match[1]) for match in (re.fullmatch(r"python3\.([0-9]{1,2})", name) for name in names) if match]
    return f"3.{max(minors)}" if minors else ""


def _packages(files: Files, folder: str) -> Iterator[tuple[str, str]]:
    yield from _installed(files.names(folder))
    version = _text(files, join(folder, "torch/version.py"), MOST_VERSION_BYTES) or ""
    cuda = re.search(r"^cuda\b[^=\n]*=\s*'([0-9.]+)'", version, re.MULTILINE)
    if cuda:
        yield "CUDA", cuda[1]


@functools.lru_cache(maxsize=32)  # plans of all nodes read the same folder of hundreds of packages
def _installed(names: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Return name and version of each package of PACKAGES, from the names of pip's folders."""
    matched = (re.fullmatch(r"([A-Za-z0-9_.]+)-([^-/]{1,60})\.dist-info", name) for name in names if name.endswith(".dist-info"))
    return tuple((match[1].lower(), match[2]) for match in matched if match and match[1].lower() in PACKAGES)


def _cann(files: Files, folder: str) -> str:
    if not files.is_dir(folder):
        return ""
    infos = (f"{name}/ascend_toolkit_install.info" for name in files.names(folder) if name.endswith("-linux"))
    for name in ("version.cfg", "version.info", "toolkit/version.info", *infos):
        text = _text(files, join(folder, name), MOST_VERSION_BYTES) or ""
        versions = re.findall(r"^(?:\w+_running_version=\[|[Vv]ersion=)([\w.:+-]{1,60})", text, re.MULTILINE)
        if versions:  # one for each component, mostly equal
            return short(" ".join(dict.fromkeys(versions)))
    return ""


def _text(files: Files, path: str, limit: int) -> str | None:
    try:
        return files.text(path, limit)
    except ValueError:  # too large, or no text
        return None


def short(value: str) -> str:
    """Return a fact's value, shortened and with its digest if it is too long."""
    return value if len(value) <= LONGEST else f"{value[:60]}... ({len(value)} characters, {digest(value)})"


def digest(text: str) -> str:
    import hashlib  # slow to import, and a single node needs no digest

    return f"sha256:{hashlib.sha256(text.encode(errors='surrogateescape')).hexdigest()[:16]}"
