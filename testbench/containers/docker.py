"""Build a Dockerfile in a folder, with RUN in a chroot, and start its ENTRYPOINT as PID 1 like a cluster.

Each command has its own namespaces of mounts and processes, which end with it. The network is the machine's.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from testbench.containers import debian, dockerfile
from testbench.places import ROOT

CONTAINERS = ROOT / "containers"
DOCKERFILES = sorted(CONTAINERS.glob("*.Dockerfile"))
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NAMESPACES = ("unshare", "--mount", "--propagation=private", "--pid", "--fork", "--kill-child")
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
NO_RIGHTS = ("--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all", "--no-new-privs")


@dataclass
class Image:
    """A root folder, and the settings of the Dockerfile for the container's start.

    below: lower folder of an overlay mount on `root`; changes are kept beside `root`. None: `root` is complete by itself.
    """

    root: Path
    below: Path | None = None
    user: str = "root"
    workdir: str = "/"
    env: dict[str, str] = field(default_factory=lambda: {"PATH": PATH})
    entrypoint: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Volume:
    """Mount at a path of the container: a folder of this machine, or an empty tmpfs that belongs to ma-user."""

    target: str
    source: Path | None = None
    options: str = "mode=0755,uid=1000,gid=100"


TMP = Volume("/tmp", options="mode=1777")


def build(path: Path, context: Path, folder: Path) -> Image:
    """Build an image. Steps before the first COPY are cached: they need apt, and depend on their text alone."""
    steps = dockerfile.steps(path, {})
    first = next(number for number, step in enumerate(steps) if step.name == "COPY")
    image = _on(_cached(steps[:first]), folder)
    for number, step in enumerate(steps):
        if step.name != "RUN" or number > first:
            _take(image, step, context)
    return image


def _on(below: Path, folder: Path) -> Image:
    """Return an image over `below`: an overlay if kernel and disk support it, else a copy, which is slow."""
    for name in ("root", "changes", "work"):
        (folder / name).mkdir()
        (folder / name).chmod(0o755)
    image = Image(folder / "root", below)
    if subprocess.run(entered(image, ["true"]), capture_output=True, timeout=900, check=False).returncode == 0:
        return image
    debian.copy(below, image.root)
    return Image(image.root)


def _cached(steps: Sequence[dockerfile.Step]) -> Path:
    runs = [step for step in steps if step.name == "RUN"]

    def make(folder: Path) -> None:
        for step in runs:
            _run(Image(folder), step)

    return debian.layer(debian.base(), "\n".join(f"{step.text} {step.variables}" for step in runs), make)


def _take(image: Image, step: dockerfile.Step, context: Path) -> None:
    if step.name == "RUN":
        _run(image, step)
    elif step.name == "COPY":
        _copy(image, step.words, context)
    elif step.name == "USER":
        image.user = step.text
    elif step.name == "WORKDIR":
        image.workdir = step.text
    elif step.name == "ENV":
        for name, value in (pair.split("=", 1) for pair in step.words):
            image.env[name] = value
    elif step.name == "ENTRYPOINT":
        image.entrypoint = step.words


def _run(image: Image, step: dockerfile.Step) -> None:
    assert image.user == "root"
    _as_root(image, step.text, {**step.variables, **image.env}, [Volume("/etc/resolv.conf", Path("/etc/resolv.conf"))])


def _copy(image: Image, words: Sequence[str], context: Path) -> None:
    """COPY: of a folder, copy its contents."""
    *sources, target = words
    assert target.endswith("/")
    there = [f"/mnt/{source}/." if (context / source).is_dir() else f"/mnt/{source}" for source in sources]
    command = f"mkdir -p {shlex.quote(target)} && {shlex.join(['cp', '-R', *there, target])}"
    _as_root(image, command, image.env, [Volume("/mnt", context)])


def _as_root(image: Image, text: str, env: Mapping[str, str], volumes: Sequence[Volume]) -> None:
    command = entered(image, ["/bin/sh", "-c", text], volumes)
    done = subprocess.run(command, env={"HOME": "/root", **env}, capture_output=True, text=True, errors="replace", timeout=900, check=False)
    assert done.returncode == 0, f"{text}: exit code {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"


def entered(image: Image, command: Sequence[str], volumes: Sequence[Volume] = (), *, read_only: bool = False) -> list[str]:
    """Return the words that start a command as PID 1 with the image's root as /."""
    lines = [shlex.join(line) for line in [_root_mount(image), *_mounts(image.root, volumes, read_only=read_only)]]
    start = shlex.join(["exec", "chroot", str(image.root), *command])
    return [*NAMESPACES, "/bin/sh", "-c", "\n".join(["set -e", *lines, start])]


def _root_mount(image: Image) -> list[str]:
    root = str(image.root)
    if not image.below:
        return ["mount", "--bind", root, root]
    folder = image.root.parent
    return ["mount", "-t", "overlay", "-o", f"lowerdir={image.below},upperdir={folder}/changes,workdir={folder}/work", "overlay", root]


def _mounts(root: Path, volumes: Sequence[Volume], *, read_only: bool) -> list[list[str]]:
    lines = [
        ["mount", "-t", "proc", "proc", f"{root}/proc"],
        ["mount", "-t", "tmpfs", "-o", "mode=0755", "tmpfs", f"{root}/dev"],
        ["mkdir", f"{root}/dev/shm"],
        ["mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", f"{root}/dev/shm"],
        ["ln", "-s", "/proc/self/fd", f"{root}/dev/fd"],
    ]
    for name in DEVICES:
        lines += [["touch", f"{root}/dev/{name}"], ["mount", "--bind", f"/dev/{name}", f"{root}/dev/{name}"]]
    for volume in volumes:
        lines += _mounted(root, volume)
    return [*lines, ["mount", "-o", "remount,bind,ro", str(root)]] if read_only else lines


def _mounted(root: Path, volume: Volume) -> list[list[str]]:
    place = f"{root}{volume.target}"
    if volume.source is None:
        return [["mkdir", "-p", place], ["mount", "-t", "tmpfs", "-o", volume.options, "tmpfs", place]]
    make = [["touch", place]] if volume.source.is_file() else [["mkdir", "-p", place]]
    return [*make, ["mount", "--bind", str(volume.source), place]]


def start(image: Image, words: Sequence[str], env: Mapping[str, str], volumes: Sequence[Volume]) -> subprocess.Popen[bytes]:
    """Start a container like a strict cluster: only volumes are writable, and the user has no capabilities."""
    user = ["setpriv", f"--reuid={image.user}", "--regid=100", "--init-groups", *NO_RIGHTS]
    command = ["env", f"--chdir={image.workdir}", *user, *words]
    return subprocess.Popen(
        entered(image, command, volumes, read_only=True),
        env={**image.env, "HOME": "/home/ma-user", **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def make_context(folder: Path) -> None:
    """Make the context of `docker build`, with wheels of ranklaunch and its dependencies, so that no network is needed."""
    shutil.copy2(CONTAINERS / "install.sh", folder)
    (folder / "wheels").mkdir()
    debian.own_wheel(folder / "wheels")
    for wheel in debian.wheels().glob("*.whl"):
        shutil.copy2(wheel, folder / "wheels")
