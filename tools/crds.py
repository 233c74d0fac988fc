"""Download the engines' CustomResourceDefinitions, against which the tests of charts and specifications validate.

    python tools/crds.py [--from URL] [FOLDER]
    python tools/crds.py --hint

FOLDER is by default the folder crds beside the repository, where the tests look for them. The files come from the projects' own
repositories on GitHub, in the versions that the tests were written against. --from names another server than raw.githubusercontent.com.
--hint downloads nothing; it prints the command if the definitions are missing.
"""

from __future__ import annotations

import sys
import urllib.error
import urllib.request
from pathlib import Path

from testbench.judges import schemas
from testbench.places import ROOT

SERVER = "https://raw.githubusercontent.com"
# By the file's name without .yaml: owner/name/version of the repository, and the path in it. MindCluster ships Volcano 1.9.
_TRAINER = ("kubeflow/trainer/8c0f5059bd51ec3ba6d6a6a7b2e1471de7bc13b3", "manifests/base/crds")
PLACES = {
    "batch.volcano.sh_jobs.v1.9.0": ("volcano-sh/volcano/v1.9.0", "config/crd/volcano/bases/batch.volcano.sh_jobs.yaml"),
    "batch.volcano.sh_jobs": (
        "volcano-sh/volcano/ed72c7c815a9fd547a787134676f73d42e9d049c",
        "config/crd/volcano/bases/batch.volcano.sh_jobs.yaml",
    ),
    "jobset.x-k8s.io_jobsets": ("kubernetes-sigs/jobset/v0.12.0", "config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml"),
    "kubeflow.org_mpijobs": (
        "kubeflow/mpi-operator/caa3c47fc42eb762635f78045ec0fcd1a89eb038",
        "manifests/base/kubeflow.org_mpijobs.yaml",
    ),
    "mindxdl.gitee.com_ascendjobs": (
        "Ascend/mind-cluster/22bb3d987bc0208c3eb7395e222b661276133c58",
        "component/ascend-operator/build/ascend-operator.yaml",
    ),
    **{
        f"trainer.kubeflow.org_{kind}": (_TRAINER[0], f"{_TRAINER[1]}/trainer.kubeflow.org_{kind}.yaml")
        for kind in ("clustertrainingruntimes", "trainingruntimes", "trainjobs")
    },
}
HINT = """\
The engines' CustomResourceDefinitions are missing, so tests that need them are skipped. To download them:
  .venv/bin/python tools/crds.py
"""
TIMEOUT_S = 30


def fetch(server: str, folder: Path) -> list[str]:
    """Write each definition into the folder. Return a line for each that failed."""
    folder.mkdir(parents=True, exist_ok=True)
    wrong = []
    for name, (repository, path) in PLACES.items():
        url = f"{server}/{repository}/{path}"
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
                text = definitions(answer.read().decode())
        except (OSError, urllib.error.URLError, UnicodeDecodeError) as error:
            wrong.append(f"{url}: {error}")
            continue
        if not text:
            wrong.append(f"{url}: no CustomResourceDefinition in this file")
            continue
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    return wrong


def definitions(text: str) -> str:
    """Return the CustomResourceDefinitions of a file; an operator's file has other objects too."""
    parts = (part.strip("\n") for part in ("\n" + text).split("\n---"))
    return "\n---\n".join(part for part in parts if "\nkind: CustomResourceDefinition\n" in f"\n{part}\n") + "\n" * ("kind: Custom" in text)


def main(words: list[str]) -> int:
    if words == ["--hint"]:
        sys.stderr.write("" if schemas.folder() else HINT)
        return 0
    server = SERVER
    if words[:1] == ["--from"] and len(words) > 1:
        server, words = words[1].rstrip("/"), words[2:]
    if len(words) > 1 or any(word.startswith("-") for word in words):
        sys.stderr.write(__doc__ or "")
        return 2
    folder = Path(words[0]) if words else ROOT.parent / "crds"
    wrong = fetch(server, folder)
    for line in wrong:
        print(f"crds.py: {line}", file=sys.stderr)
    print(f"{len(PLACES) - len(wrong)} of {len(PLACES)} definitions are in {folder}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
