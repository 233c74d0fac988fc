"""A small Debian in a folder, to build and run containers without Docker. Made once by debootstrap, and cached."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from testbench.places import ROOT

# python3-venv: a part of the image python:3 that Debian's python3 lacks.
PACKAGES = ("python3", "python3-venv")
NO_SERVICES = "#!/bin/sh\nexit 101\n"  # as in Docker's images of Debian: installed packages start no services
DOCUMENTATION = ("usr/share/doc", "usr/share/info", "usr/share/locale", "usr/share/man")
TIMEOUT_S = 900


def cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ranklaunch"


def base() -> Path:
    """Return the folder of plain Debian, from the mirror that this machine uses."""
    return kept(f"debootstrap-{_release()}-{platform.machine()}-base", _bootstrap)


def layer(below: Path, text: str, make: Callable[[Path], None]) -> Path:
    """Return a copy of `below` after `make`, cached by `text` like a layer of Docker: the same text is made once."""

    def copy_and_make(folder: Path) -> None:
        copy(below, folder)
        make(folder)

    digest = hashlib.sha256(f"{below.name}\n{text}".encode()).hexdigest()[:16]
    return kept(f"debootstrap-{_release()}-{platform.machine()}-{digest}", copy_and_make)


def kept(name: str, make: Callable[[Path], None]) -> Path:
    """Return a folder of the cache, made by the first caller. A rename puts it in place when it is complete."""
    target = cache() / name
    with _lock(name):
        if not target.is_dir():
            part = Path(tempfile.mkdtemp(prefix=f"{name}.", dir=cache()))
            try:
                part.chmod(0o755)
                make(part)
                part.rename(target)
            finally:
                shutil.rmtree(part, ignore_errors=True)
    return target


@contextlib.contextmanager
def _lock(name: str) -> Iterator[None]:
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def copy(source: Path, target: Path) -> None:
    call("cp", "-a", "--reflink=auto", f"{source}/.", str(target))


def wheels() -> Path:
    """Return the wheels of ranklaunch's dependencies, for the Python of this Debian."""
    return kept(f"debootstrap-{_release()}-{platform.machine()}-wheels", _download)


def own_wheel(folder: Path) -> None:
    call(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder), str(ROOT))


def call(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, f"{' '.join(words)}: exit code {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def _release() -> str:
    lines = Path("/etc/os-release").read_text(encoding="utf-8").splitlines()
    return dict(line.partition("=")[::2] for line in lines)["VERSION_CODENAME"]


def _mirror() -> str:
    """Return the URI from which apt installs this machine's packages."""
    fields = "$(REPO_URI) $(CODENAME) $(COMPONENT)"
    targets = [line.split() for line in call("apt-get", "indextargets", "--format", fields, "Created-By: Packages").splitlines()]
    return next(uri for uri, codename, component in targets if (codename, component) == (_release(), "main"))


def _bootstrap(folder: Path) -> None:
    call("debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", _release(), str(folder), _mirror())
    call("chroot", str(folder), "apt-get", "clean")
    _slim(folder)
    services = folder / "usr/sbin/policy-rc.d"
    services.write_text(NO_SERVICES, encoding="ascii")
    services.chmod(0o755)


def _slim(folder: Path) -> None:
    """Remove documentation, also of packages installed later: it is half of the files, and every image copies them."""
    excluded = "".join(f"path-exclude=/{name}/*\n" for name in DOCUMENTATION)
    (folder / "etc/dpkg/dpkg.cfg.d/slim").write_text(excluded, encoding="ascii")
    for name in DOCUMENTATION:
        shutil.rmtree(folder / name)


def _download(folder: Path) -> None:
    version = call("chroot", str(base()), "python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip()
    fitting = ("--only-binary=:all:", "--implementation=cp", f"--python-version={version}")
    platforms = [f"--platform={kind}_{platform.machine()}" for kind in ("manylinux2014", "manylinux_2_17", "manylinux_2_28")]
    call(sys.executable, "-m", "pip", "download", "-q", "--no-deps", *fitting, *platforms, "-d", str(folder), "jinja2>=3.1", "markupsafe")
