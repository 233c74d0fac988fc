"""Write src/ranklaunch/specs/kubernetes/fields.py: the fields of a pod's objects, from Kubernetes' own schemas.

.venv/bin/python tools/pod_fields.py            write it
.venv/bin/python tools/pod_fields.py --check    write nothing; exit with 1 if it is stale

The schemas come with kubernetes-validate (the extra charts). They lack the legal words of fields, so LEGAL below has them.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

VERSION = "1.35"
PAGE = Path(__file__).resolve().parent.parent / "src" / "ranklaunch" / "specs" / "kubernetes" / "fields.py"
# Types of the objects that users write; their parts follow.
ROOTS = (
    "Affinity", "Container", "EnvFromSource", "EnvVar", "PodTemplate", "Toleration", "Volume", "VolumeMount",
)  # fmt: skip
# Fields of a pod's spec that no other value sets and that cannot break a job.
POD_TEMPLATE = (
    "dnsConfig", "dnsPolicy", "hostAliases", "hostIPC", "hostPID", "hostUsers", "nodeName", "preemptionPolicy", "runtimeClassName",
    "schedulingGates", "securityContext", "shareProcessNamespace", "topologySpreadConstraints",
)  # fmt: skip
SCALARS = {"Quantity": "quantity", "IntOrString": "word", "Time": "string"}
# Names that the API server also requires, in the form of names of objects.
NAMES = (
    "ConfigMapEnvSource.name", "ConfigMapKeySelector.name", "ConfigMapProjection.name", "ConfigMapVolumeSource.name",
    "PersistentVolumeClaimVolumeSource.claimName", "SecretEnvSource.name", "SecretKeySelector.name", "SecretProjection.name",
    "SecretVolumeSource.secretName",
)  # fmt: skip
ASKED_FOR = (*NAMES, "Container.image")
ANYTHING = ("ObjectMeta",)  # metadata of inner templates: not checked
LEGAL = {
    "Container.imagePullPolicy": "Always IfNotPresent Never",
    "Container.restartPolicy": "Always",
    "Container.terminationMessagePolicy": "File FallbackToLogsOnError",
    "ContainerPort.protocol": "TCP UDP SCTP",
    "HTTPGetAction.scheme": "HTTP HTTPS",
    "LabelSelectorRequirement.operator": "In NotIn Exists DoesNotExist",
    "NodeSelectorRequirement.operator": "In NotIn Exists DoesNotExist Gt Lt",
    "PodTemplate.dnsPolicy": "ClusterFirst ClusterFirstWithHostNet Default None",
    "PodTemplate.preemptionPolicy": "Never PreemptLowerPriority",
    "PodSecurityContext.supplementalGroupsPolicy": "Merge Strict",
    "SeccompProfile.type": "Localhost RuntimeDefault Unconfined",
    "Toleration.effect": "NoSchedule PreferNoSchedule NoExecute",
    "Toleration.operator": "Exists Equal",
    "TopologySpreadConstraint.nodeAffinityPolicy": "Honor Ignore",
    "TopologySpreadConstraint.nodeTaintsPolicy": "Honor Ignore",
    "TopologySpreadConstraint.whenUnsatisfiable": "DoNotSchedule ScheduleAnyway",
    "VolumeMount.mountPropagation": "None HostToContainer Bidirectional",
}
HEAD = f'''\
"""Fields of a pod's objects. Made by tools/pod_fields.py from the schemas of Kubernetes {VERSION}; do not edit.

A line has a type and its fields, each with its kind of value: a type, a list of a type ([]), a map of a type ({{}}), one of some words
(a|b). ! marks a required field. A quantity is text or a number, a word text or an integer, a name the name of an object.
"""

from __future__ import annotations

FIELDS = """\\
'''


class Types:
    """Types used by the fields of a pod, each once."""

    def __init__(self, definitions: dict[str, Any]) -> None:
        self._definitions = {
            name.rpartition(".")[2]: each for name, each in definitions.items() if ".core.v1." in name or "meta.v1" in name
        }
        fields = self._definitions["PodSpec"]["properties"]
        self._definitions["PodTemplate"] = {"properties": {name: fields[name] for name in POD_TEMPLATE}}
        self.found: dict[str, list[str]] = {}

    def add(self, name: str) -> None:
        if name in self.found:
            return
        self.found[name] = []
        schema = self._definitions[name]
        for field, each in sorted(schema["properties"].items()):
            place = f"{name}.{field}"
            kind = "name" if place in NAMES else "|".join(LEGAL[place].split()) if place in LEGAL else self._kind(each)
            needed = field in schema.get("required", ()) or place in ASKED_FOR
            self.found[name].append(f"{field}{'!' if needed else ''}={kind}")

    def _kind(self, schema: Any) -> str:
        if "$ref" in schema:
            return self._of(schema["$ref"].rpartition("/")[2].rpartition(".")[2])
        kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        (kind,) = (each for each in kinds if each != "null")
        if kind == "array":
            return f"{self._kind(schema['items'])}[]"
        return f"{self._kind(schema['additionalProperties'])}{{}}" if kind == "object" else str(kind)

    def _of(self, name: str) -> str:
        if name in ANYTHING:
            return "anything"
        if name not in SCALARS:
            self.add(name)
        return SCALARS.get(name, name)


def definitions() -> dict[str, Any]:
    spec = importlib.util.find_spec("kubernetes_validate")
    if not spec or not spec.origin:
        sys.exit("pod_fields.py: kubernetes-validate is not installed: pip install 'ranklaunch[charts]'")
    folder = Path(spec.origin).parent / "kubernetes-json-schema" / f"v{VERSION}.0-local-strict"
    found: dict[str, Any] = json.loads((folder / "_definitions.json").read_text(encoding="utf-8"))["$defs"]
    return found


def lines() -> Iterator[str]:
    types = Types(definitions())
    for root in ROOTS:
        types.add(root)
    for name, fields in sorted(types.found.items()):
        yield from textwrap.wrap(f"{name}: {' '.join(fields)}", 138, subsequent_indent="  ", break_on_hyphens=False)


def made() -> str:
    return HEAD + "\n".join(lines()) + '\n"""\n'


def main(words: list[str]) -> int:
    stale = not PAGE.exists() or PAGE.read_text(encoding="utf-8") != made()
    if words == ["--check"]:
        if stale:
            print(f"{PAGE.name} is stale: run tools/pod_fields.py", file=sys.stderr)
        return int(stale)
    if words:
        print(re.sub(r"\n\n.*", "", __doc__ or "", count=1), file=sys.stderr)
        return 2
    PAGE.write_text(made(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
