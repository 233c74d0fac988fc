"""Print how often the catalogue of known errors is right on the outputs in tests/corpus: `make corpus`.

`tools/corpus.py judged2` uses that folder alone.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from ranklaunch import catalogue

CORPUS = Path(__file__).resolve().parent.parent / "tests" / "corpus"
JUDGED = ("judged", "judged2", "judged3")
MADE = "made"  # outputs of tools/make_failures.py
TAIL = "%%% "  # begins the line with the name of each output, in a file with several
KINDS = ("cause", "consequence", "stopped")
UNKNOWN = "not recognised"


@dataclass(frozen=True)
class Case:
    """An output with its label. Outputs of quiet runs have no label."""

    name: str
    text: str
    kind: str = ""
    family: str = ""
    says: str = ""


@dataclass(frozen=True)
class Answer:
    """The catalogue's answer for a case."""

    case: Case
    kind: str
    entry: str

    @property
    def right(self) -> bool:
        return self.kind == self.case.kind

    @property
    def wrong(self) -> bool:
        return self.kind not in (self.case.kind, UNKNOWN)


def read(path: Path) -> Case:
    head, _, text = path.read_text(encoding="utf-8").partition("\n\n")
    fields = dict(line.split(": ", 1) for line in head.splitlines())
    return Case(path.stem, text, fields.get("kind", ""), fields.get("family", ""), fields.get("says", ""))


def read_all(folder: str, corpus: Path = CORPUS) -> list[Case]:
    return [case for path in sorted((corpus / folder).glob("*.txt")) for case in tails(read(path))]


def tails(whole: Case) -> list[Case]:
    """Split a file with several outputs, each below a line TAIL NAME; return other files as they are."""
    first, *more = f"\n{whole.text}".split(f"\n{TAIL}")
    parts = [("start", "", first), *(part.partition("\n") for part in more)]
    return [replace(whole, name=f"{whole.name}/{name}", text=text) for name, _, text in parts if text.strip()] if more else [whole]


def ask(case: Case) -> Answer:
    found = catalogue.find(case.text)
    return Answer(case, found.error.kind, found.error.name) if found else Answer(case, UNKNOWN, "")


def false_alarms(answers: list[Answer]) -> list[Answer]:
    """Return the answers for quiet runs in which the catalogue recognised anything."""
    return [answer for answer in answers if answer.kind != UNKNOWN]


def report(judged: list[Answer], quiet: list[Answer], folder: str = "judged") -> str:
    lines = [_total(folder, judged), ""]
    families = sorted({answer.case.family for answer in judged})
    lines += [_total(family, [answer for answer in judged if answer.case.family == family]) for family in families]
    lines += ["", "label     recognised as: " + "".join(f"{kind:>16}" for kind in (*KINDS, UNKNOWN))]
    counts = Counter((answer.case.kind, answer.kind) for answer in judged)
    lines += [f"{kind:25}" + "".join(f"{counts[kind, answer]:16}" for answer in (*KINDS, UNKNOWN)) for kind in KINDS]
    alarms = false_alarms(quiet)
    if quiet:
        lines += ["", f"{'quiet':12}{len(quiet):5} outputs  {len(alarms):4} false alarms ({_share(alarms, quiet)})"]
    lines += [f"  {answer.case.name}: {answer.entry} ({answer.kind})" for answer in alarms]
    lines += ["", "wrong:"]
    lines += [f"  {a.case.name}: {a.entry} ({a.kind}), expected {a.case.kind}: {a.case.says}" for a in judged if a.wrong]
    lines += ["", "not recognised:"]
    lines += [f"  {a.case.name} ({a.case.kind}): {a.case.says}" for a in judged if a.kind == UNKNOWN]
    return "\n".join(lines)


def _total(name: str, answers: list[Answer]) -> str:
    right, wrong = [a for a in answers if a.right], [a for a in answers if a.wrong]
    unknown = len(answers) - len(right) - len(wrong)
    shares = f"{len(right):4} right ({_share(right, answers)})  {len(wrong):4} wrong ({_share(wrong, answers)})  {unknown:4} {UNKNOWN}"
    return f"{name:12}{len(answers):5} outputs  {shares}"


def _share(some: list[Answer], answers: list[Answer]) -> str:
    return f"{100 * len(some) / max(1, len(answers)):5.1f} %"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", choices=(*JUDGED, MADE), help="a folder of tests/corpus (default: all, and the quiet runs)")
    only = parser.parse_args().folder
    quiet = [] if only else [ask(case) for case in read_all("quiet")]
    folders = (only,) if only else (*JUDGED, MADE)
    reports = [report([ask(case) for case in read_all(name)], quiet if name == "judged" else [], name) for name in folders]
    print("\n\n".join(reports))
    return 0


if __name__ == "__main__":
    sys.exit(main())
