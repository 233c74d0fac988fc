"""Build ranklaunch's wheel and source distribution, and check them as a release needs: `make dist`.

    python tools/dist.py [--out FOLDER] [--tag TAG] [--build-only]
    python tools/dist.py --notes TAG        # print the page of that version in CHANGELOG.md

The steps need no account:

1. Compare the version of the package with those of the charts and, for a release, with the tag and CHANGELOG.md.
2. Build both files twice, from copies of the tracked files in different folders, umasks and time zones: the bytes must be equal.
3. Validate the metadata that an index reads.
4. Unless --build-only: install the wheel with pip, pipx and uv for each Python of this machine from 3.9 on; run `ranklaunch --version`.

Step 4 needs a package index once, for Jinja2, PyYAML, pipx and uv; the installations themselves use the downloaded wheels.
"""

from __future__ import annotations

import argparse
import email
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDEST = 9  # of Python 3
NEWEST = 20
UV = "uv==0.13.9"
NEEDED = ("jinja2>=3.1", "PyYAML>=6", "pip")  # pip: pipx needs a newer one than a new environment has
MOST_BYTES = 20 << 20  # notices a large file in the wheel before the index refuses it
TIMEOUT_S = 600


class ReleaseError(Exception):
    """A reason not to release these files."""


# Versions


def version(root: Path = ROOT) -> str:
    text = (root / "src" / "ranklaunch" / "version.py").read_text(encoding="utf-8")
    (found,) = re.findall(r'^__version__ = "(.*)"$', text, re.MULTILINE)
    return str(found)


def check_charts(root: Path = ROOT) -> None:
    """Raise ReleaseError if a chart has another version than the package: both are published together."""
    for chart in sorted((root / "charts").glob("*/Chart.yaml")):
        stated = re.findall(r'^(version|appVersion): "?([^"\n]*)"?$', chart.read_text(encoding="utf-8"), re.MULTILINE)
        if dict(stated) != {"version": version(root), "appVersion": version(root)}:
            msg = f"{chart.relative_to(root)} has {dict(stated)}, the package {version(root)}: set version and appVersion"
            raise ReleaseError(msg)


def check_tag(tag: str, root: Path = ROOT) -> None:
    if tag != f"v{version(root)}":
        msg = f"tag {tag}: the package has version {version(root)}, whose tag is v{version(root)}"
        raise ReleaseError(msg)
    notes(tag, root)
    changed = output("git", "status", "--porcelain", cwd=root)
    if changed:
        msg = f"tag {tag}: the working tree differs from the commit; commit or remove these files:\n{changed.rstrip()}"
        raise ReleaseError(msg)


def notes(tag: str, root: Path = ROOT) -> str:
    """Return the text below the heading of that version in CHANGELOG.md."""
    wanted = tag[1:] if tag.startswith("v") else tag
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    heading = re.search(rf"^## \[?{re.escape(wanted)}(?:\]|[ \n]).*\n?", text, re.MULTILINE)
    page = re.split(r"^## ", text[heading.end() :], maxsplit=1, flags=re.MULTILINE)[0].strip() if heading else ""
    if not page:
        msg = f"CHANGELOG.md has no page of {wanted}: write what users notice below the heading ## [{wanted}]"
        raise ReleaseError(msg)
    return f"{page}\n"


# Build


@dataclass(frozen=True)
class Setting:
    """Circumstances that must not change the result of a build."""

    folder: str
    umask: int
    time_zone: str


SETTINGS = (Setting("ranklaunch", 0o022, "UTC"), Setting("another folder/of the tree", 0o077, "Asia/Shanghai"))


def build_twice(out: Path, root: Path = ROOT) -> list[Path]:
    """Build in each of SETTINGS, compare the bytes, and put the files into `out` in place of earlier ones."""
    with tempfile.TemporaryDirectory(prefix="ranklaunch-dist-") as folder:
        names, source, built = sources(root), root, []
        for number, setting in enumerate(SETTINGS):
            tree = Path(folder, str(number), setting.folder)
            copy_tree(source, names, tree, setting.umask)
            built.append(_build(tree, Path(folder, str(number), "dist"), setting))
            source = tree  # not the root, which may change meanwhile
        for one, other in zip(*built):
            if one.name != other.name or digest(one) != digest(other):
                msg = f"{one.name} is not reproducible: two builds of the same files differ in\n{differences(one, other)}"
                raise ReleaseError(msg)
        out.mkdir(parents=True, exist_ok=True)
        for old in [*out.glob("ranklaunch-*.whl"), *out.glob("ranklaunch-*.tar.gz")]:
            old.unlink()
        return [Path(shutil.copyfile(each, out / each.name)) for each in built[0]]


def sources(root: Path) -> list[str]:
    """List the tracked files; in a source distribution, which has no git, all files."""
    if (root / ".git").exists():
        names = filter(None, output("git", "ls-files", "-z", cwd=root).split("\0"))
        return [name for name in names if os.path.lexists(root / name)]  # a file may be deleted, but not committed yet
    made = {"__pycache__", "build", "dist", "runs", "ranklaunch-logs"}
    return [
        str(path.relative_to(root))
        for path in sorted(root.rglob("*"))
        if path.is_symlink() or path.is_file()
        if not made.intersection(path.relative_to(root).parts) and not path.relative_to(root).parts[0].startswith((".venv", ".hypothesis"))
    ]


def copy_tree(root: Path, names: Sequence[str], target: Path, umask: int) -> None:
    """Copy these files with the modes that a checkout under `umask` gives them."""
    for name in names:
        source, copy = root / name, target / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink():
            copy.symlink_to(os.readlink(source))
        else:
            shutil.copyfile(source, copy)
            copy.chmod((0o777 if source.stat().st_mode & 0o100 else 0o666) & ~umask)


def _build(tree: Path, out: Path, setting: Setting) -> list[Path]:
    made = []
    for kind in ("wheel", "sdist"):
        script = f"import sys; from hatchling.build import build_{kind} as build; print(build(sys.argv[1]))"
        env = {**os.environ, "TZ": setting.time_zone}
        printed = output(sys.executable, "-c", script, str(out), cwd=tree, env=env, umask=setting.umask)
        made.append(out / printed.split()[-1])
    return made


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def differences(one: Path, other: Path) -> str:
    """List the members that differ, or say that only their packing does."""
    ours, theirs = dict(_members(one)), dict(_members(other))
    names = sorted(name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name))
    return "\n".join(f"  {name}: {ours.get(name)} and {theirs.get(name)}" for name in names) or "  order or compression of their members"


def _members(path: Path) -> Iterator[tuple[str, tuple[object, ...]]]:
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                yield member.filename, (oct(member.external_attr >> 16), member.date_time, member.CRC)
    else:
        with tarfile.open(path) as tar:
            for each in tar.getmembers():
                file = tar.extractfile(each) if each.isfile() else None
                yield (
                    each.name,
                    (oct(each.mode), each.mtime, each.linkname or hashlib.sha256(file.read() if file else b"").hexdigest()[:16]),
                )


# Metadata


def check_metadata(files: Sequence[Path]) -> None:
    """Validate the metadata as an index does. Raise ReleaseError if it is wrong, or differs between the files."""
    from packaging.metadata import Metadata

    texts = [_metadata(path) for path in files]
    for path, text in zip(files, texts):
        try:
            found = Metadata.from_email(text, validate=True)
        except Exception as error:
            reasons = "; ".join(map(str, getattr(error, "exceptions", (error,))))
            msg = f"{path.name}: an index would refuse its metadata: {reasons}"
            raise ReleaseError(msg) from None
        if (found.name, str(found.version)) != ("ranklaunch", version()) or found.description_content_type != "text/markdown":
            msg = f"{path.name}: its metadata is of {found.name} {found.version} with a page of {found.description_content_type}"
            raise ReleaseError(msg)
        if path.stat().st_size > MOST_BYTES:
            msg = f"{path.name} has {path.stat().st_size} bytes, expected at most {MOST_BYTES}: look for a large file in it"
            raise ReleaseError(msg)
    if email.message_from_bytes(texts[0]).items() != email.message_from_bytes(texts[1]).items():
        msg = "wheel and source distribution differ in their metadata"
        raise ReleaseError(msg)


def _metadata(path: Path) -> bytes:
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as archive:
            return archive.read(next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA")))
    with tarfile.open(path) as tar:
        file = tar.extractfile(f"{path.name[: -len('.tar.gz')]}/PKG-INFO")
        assert file, "PKG-INFO is a file"
        return file.read()


# Install


def pythons() -> dict[str, str]:
    """Return a Python of each version from 3.9 on: the running one, else from PATH, else from pyenv. A shim that fails is skipped."""
    home = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = {}
    for name in (f"3.{minor}" for minor in range(OLDEST, NEWEST)):
        own = sys.executable if name == "{}.{}".format(*sys.version_info[:2]) else None
        for path in filter(None, (own, shutil.which(f"python{name}"), *map(str, sorted(home.glob(f"{name}.*/bin/python{name}"))))):
            asked = subprocess.run(
                [path, "-c", "import ensurepip, sys, venv; print(sys.executable)"], capture_output=True, text=True, check=False
            )
            if asked.returncode == 0:
                found[name] = asked.stdout.strip()
                break
    return found


def check_installs(wheel: Path) -> None:
    """Install by each way for each Python, each into folders of its own, and compare what --version prints."""
    with tempfile.TemporaryDirectory(prefix="ranklaunch-dist-") as name:
        folder = Path(name)
        environment(sys.executable, folder / "tool-uv", UV)
        for version_, python in pythons().items():
            place = folder / version_
            _install(wheel, python, place, folder / "tool-uv/bin/uv")
            for way in ("pip", "pipx", "uv"):
                printed = output(f"{place}/{way}/bin/ranklaunch", "--version", env=bare(place), cwd=place)
                if printed != f"ranklaunch {version()}\n":
                    msg = f"Python {version_}, {way}: ranklaunch --version printed {printed!r}"
                    raise ReleaseError(msg)
            say(f"Python {version_}: pip, pipx and uv install it, and it is {printed.strip()}")


def _install(wheel: Path, python: str, place: Path, uv: Path) -> None:
    """Download with pip what the three need, and install with each from these wheels alone."""
    # One pipx for each Python: the newest that it can run, with a suitable pip.
    pip = environment(python, place / "tool", "pipx")
    links = place / "wheels"
    output(*pip, "download", "-q", "-d", str(links), *NEEDED)
    local = ("--no-index", "--find-links", str(links))

    output(python, "-m", "venv", "--without-pip", str(place / "pip"))
    output(*pip, "--python", f"{place}/pip/bin/python", "install", "-q", "--no-compile", *local, f"{wheel}[yaml,tune]")

    env = {"PIPX_HOME": f"{place}/pipx", "PIPX_BIN_DIR": f"{place}/pipx/bin", "PIPX_MAN_DIR": f"{place}/pipx/man", "PIP_NO_COMPILE": "1"}
    output(f"{place}/tool/bin/pipx", "install", "--pip-args", " ".join(local), str(wheel), env=bare(place, env))

    env = {"UV_TOOL_DIR": f"{place}/uv", "UV_TOOL_BIN_DIR": f"{place}/uv/bin", "UV_CACHE_DIR": f"{place}/uv-cache"}
    output(str(uv), "tool", "install", "--quiet", "--python", python, *local, str(wheel), env=bare(place, env))


def environment(python: str, folder: Path, requirement: str) -> tuple[str, ...]:
    """Make a virtual environment with a package of the index. Return the words that start its pip."""
    output(python, "-m", "venv", str(folder))
    pip = (str(folder / "bin/python"), "-m", "pip")
    output(*pip, "install", "-q", "--no-compile", requirement)
    return pip


def bare(home: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a user who has set no variables."""
    return {"PATH": "/usr/bin:/bin", "HOME": str(home), "LANG": "C.UTF-8", **(more or {})}


# The command


def output(*words: str, cwd: Path | None = None, env: Mapping[str, str] | None = None, umask: int = -1) -> str:
    done = subprocess.run(
        words, cwd=cwd, env=env, umask=umask, capture_output=True, text=True, errors="replace", timeout=TIMEOUT_S, check=False
    )
    if done.returncode:
        msg = f"{' '.join(words)}: exit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-4000:]}".rstrip()
        raise ReleaseError(msg)
    return done.stdout


def say(text: str) -> None:
    print(f"dist.py: {text}", flush=True)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Build wheel and source distribution, and check them.", allow_abbrev=False)
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder for the two files (default: dist)")
    parser.add_argument("--tag", help="tag of the release, such as v0.2.0: it must match the version, and CHANGELOG.md must have its page")
    parser.add_argument("--build-only", action="store_true", help="install nothing, and ask no package index")
    parser.add_argument("--notes", metavar="TAG", help="print the page of that version in CHANGELOG.md, and build nothing")
    options = parser.parse_args(words)
    try:
        if options.notes:
            print(notes(options.notes), end="")
        else:
            release(options.out, options.tag, install=not options.build_only)
    except ReleaseError as error:
        print(f"dist.py: {error}", file=sys.stderr)
        return 1
    return 0


def release(out: Path, tag: str | None, *, install: bool) -> None:
    check_charts()
    if tag is not None:
        check_tag(tag)
    files = build_twice(out)
    say("two builds, in other folders, umasks and time zones, have the same bytes")
    check_metadata(files)
    say("the metadata is valid")
    if install:
        check_installs(files[0])
    for path in files:
        say(f"{path.name}: {path.stat().st_size} bytes, sha256 {digest(path)}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
