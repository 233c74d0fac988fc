"""Writes what the documentation takes from tables in the code: the marked parts of its pages.

.venv/bin/python docs/make_reference.py            write them
.venv/bin/python docs/make_reference.py --check    write nothing; name those that are stale and exit with 1
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from ranklaunch.adapters.launchers import LAUNCHERS, launcher
from ranklaunch.adapters.launchers.shared import starters, variables
from ranklaunch.adapters.launchers.shared.variables import MISLEADING
from ranklaunch.adapters.platforms import PLATFORMS
from ranklaunch.adapters.platforms.shared.base import OF_ALL, names_in
from ranklaunch.catalogue import shipped
from ranklaunch.catalogue.entry import GENERAL
from ranklaunch.cli import job_spec
from ranklaunch.diagnose import suspects
from ranklaunch.env import features, settings, tuning
from ranklaunch.env.reader import Variable
from ranklaunch.errors import EXIT_CODES
from ranklaunch.hangs import suspicion
from ranklaunch.plan.planning import every_variable
from ranklaunch.specs import keys
from ranklaunch.specs.model import KINDS, JobSpec
from ranklaunch.verdict import blame, events

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- table: {name} (docs/make_reference.py writes it) -->\n", "<!-- end of table -->"
MARKED = re.compile(BEGIN.replace("(", r"\(").replace(")", r"\)").format(name="(?P<name>[a-z ]+)") + f"(?P<table>.*?){END}", re.DOTALL)

Rows = Iterable[Sequence[str]]


def main(argv: Sequence[str], root: Path = ROOT) -> int:
    if list(argv) not in ([], ["--check"]):
        sys.stderr.write(__doc__ or "")
        return 2
    stale = [(path, text) for path, text in pages(root) if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path, text in stale:
        if argv:
            sys.stderr.write(f"{path.relative_to(root)} is stale: run docs/make_reference.py\n")
        else:
            path.write_text(text, encoding="utf-8")
    return 1 if stale and argv else 0


def pages(root: Path) -> Iterator[tuple[Path, str]]:
    """Every page with something made in it, as it should be."""
    for path in sorted([*root.glob("*.md"), *root.glob("docs/**/*.md")]):
        before = path.read_text(encoding="utf-8")
        if MARKED.search(before):
            yield path, MARKED.sub(_made, before)


def _made(marked: re.Match[str]) -> str:
    return f"{BEGIN.format(name=marked['name'])}{TABLES[marked['name']]()}{END}"


# docs/variables.md


def _variables() -> str:
    return "\n".join(f"## {title}\n\n{_variables_table(variables)}" for title, variables in sections())


def sections() -> Iterator[tuple[str, tuple[Variable[object], ...]]]:
    yield "Every platform and method", (*settings.VARIABLES, *OF_ALL)
    yield "Saving without a stop", features.OF_SAVING
    yield "A console with many ranks", features.OF_CONSOLE
    yield "Success", features.OF_TRUST
    yield "Jobs that hang", features.OF_HANGS
    yield "Tools that are told of a job", features.OF_TOOLS
    yield "Of the command plan alone", settings.PLAN_VARIABLES
    yield "Of the command check alone", features.CHECK_VARIABLES
    yield "Of restarts in place alone", features.OF_RESTARTS
    yield "Of the command tune alone", tuning.VARIABLES
    yield "Ascend NPUs, whatever the method", variables.VARIABLES
    for kind, adapters in (("Platform", PLATFORMS), ("Method", {name: launcher(name) for name in LAUNCHERS})):
        for name, adapter in adapters.items():
            if adapter.VARIABLES:
                yield f"{kind} {name}", adapter.VARIABLES


def _variables_table(variables: Iterable[Variable[object]]) -> str:
    head = ("value", "variables, highest first", "option", "type", "default", "meaning", "set by")
    return _table(
        head,
        (
            (
                variable.value,
                "<br>".join(f"`{name}`" for name in variable.names),
                f"`{variable.option}`" if variable.option else "",
                type_of(variable),
                _default(variable),
                _meaning(variable),
                _setters(variable),
            )
            for variable in variables
        ),
    )


def type_of(variable: Variable[object]) -> str:
    """Return the expectation of a variable's parser, from its error about a NUL, which no parser accepts."""
    try:
        variable.parse("\0")
    except ValueError as error:
        return str(error).removeprefix("expected ").partition(" (")[0].removesuffix(" without NUL")
    msg = f"{variable.value}: its parser takes a NUL"
    raise AssertionError(msg)


def _default(variable: Variable[object]) -> str:
    text = variable.shown_default
    return text if variable.default_text or not text else f"`{text}`"


def _setters(variable: Variable[object]) -> str:
    return ", ".join(dict.fromkeys(variable.setter(name) for name in variable.names))


def _removed_table() -> str:
    return _table(("names", "why"), ((", ".join(f"`{name}`" for name in names.split()), why) for names, why in MISLEADING.items()))


def _index_table() -> str:
    """Return the index: from the name of a variable to the value that it gives."""
    places: dict[str, dict[tuple[str, str, str], None]] = {}
    for variable in every_variable():
        order = [*([variable.option] if variable.option else []), *variable.names]
        for name in variable.names:
            before = ", ".join(f"`{other}`" for other in order[: order.index(name)])
            places.setdefault(name, {})[variable.value, variable.setter(name), before] = None
    rows = [(f"`{name}`", *place) for name in sorted(places) for place in _longest(places[name])]
    return _table(("variable", "value", "set by", "comes after"), rows)


def _longest(places: Iterable[tuple[str, str, str]]) -> Iterator[tuple[str, str, str]]:
    """One place for each value: the one with most before it tells the others' too."""
    by_value: dict[str, tuple[str, str, str]] = {}
    for place in places:
        if place[0] not in by_value or len(place[2]) > len(by_value[place[0]][2]):
            by_value[place[0]] = place
    yield from by_value.values()


# docs/known-errors.md


def _errors() -> str:
    head = ("name", "kind", "meaning", "what to do", "again", "source")
    parts = []
    for family in dict.fromkeys(error.family for error in shipped()):
        errors = (error for error in shipped() if error.family == family)
        rows = (
            (f"`{error.name}`", f'<a id="{error.name}"></a>{error.kind}', error.meaning, error.remedy, error.retry, f"<{error.source}>")
            for error in errors
        )
        parts.append(f"## {family}\n\n{_table(head, rows)}")
    return "\n".join(parts)


_SHORTEST_WORDS = 6  # characters: less says nothing by itself
_MOST_ENTRIES = 4  # with the same words
_CODES = "CANN codes"  # all known errors that are only digits


def _errors_by_words() -> str:
    """The plain texts of all patterns, for people who look for one."""
    entries: dict[str, list[str]] = {}
    for error in shipped():
        for text in error.needed if error.standing not in GENERAL else ():
            if len(text.strip()) >= _SHORTEST_WORDS and "|" not in text and "`" not in text:
                entries.setdefault(text.strip(), []).append(error.name)
    entries = {text: names for text, names in entries.items() if len(names) <= _MOST_ENTRIES}
    by_letter: dict[str, list[str]] = {}
    numbers = [text for text in entries if text.isdigit()]
    codes = f"{_CODES} {min(numbers)}-{max(numbers)}"
    for text in sorted(entries, key=lambda text: (_letters(text), text)):
        links = ", ".join(f"[{name}](#{name})" for name in dict.fromkeys(entries[text]))
        by_letter.setdefault(codes if text.isdigit() else _letters(text)[:1] or "#", []).append(f"`{text}`: {links}")
    lines = (f"**{letter if letter == codes else letter.upper()}** {'; '.join(found)}." for letter, found in by_letter.items())
    return "\n\n".join(lines) + "\n"


def _letters(text: str) -> str:
    return "".join(letter for letter in text.lower() if letter.isalpha() and letter.isascii())


# Tables of other pages


def _exit_codes() -> str:
    return _table(("code", "meaning"), ((str(code), meaning) for code, meaning in EXIT_CODES.items()))


def _platform(name: str) -> Callable[[], str]:
    """What one platform reads beyond, or in place of, what all do: a row for each value."""
    head = ("value", "variables, highest first", "meaning")
    return lambda: _table(head, ((v.value, ", ".join(f"`{n}`" for n in v.names), _meaning(v)) for v in PLATFORMS[name].VARIABLES))


def _meaning(variable: Variable[object]) -> str:
    return variable.meaning + ("; *must agree*" if variable.agree else "")


def _spec_values() -> str:
    return _table(
        ("key", "option", "type", "default", "meaning"),
        (
            (f"`{name}`", _spec_option(name), _spec_type(key), f"`{json.dumps(key.default)}`", key.meaning)
            for name, key in keys.every(JobSpec)
        ),
    )


def _spec_option(name: str) -> str:
    return f"`{job_spec.OPTION_OF[name]}`" if name in job_spec.OPTION_OF else ""


def _spec_type(key: keys.Key) -> str:
    if key.legal:
        return ("list of: " if key.kind == keys.TEXTS else "one of: ") + ", ".join(word or '""' for word in key.legal)
    return f"{key.kind} from {key.low} to {key.high}" if key.high else key.kind


def _order_of_platforms() -> str:
    return _table(("platform", "why there"), ((f"`{row.name}`", row.why) for row in PLATFORMS.rows.values()))


# What `ranklaunch spec` calls a platform, where it is not its name.
KINDS_OF = {
    "skypilot": "sky", "jobset": "jobset", "indexed_job": "job", "kubeflow_trainer": "trainjob", "ascend_operator": "acjob",
}  # fmt: skip
# Sections that are not called as the platform.
TITLES = {"pytorchjob": "pytorchjob before pet variables", "tione": "ti-one"}


def _places() -> str:
    return _table(("place", "platform", "recognised by", "ranklaunch is started by", "spec"), map(_place, PLATFORMS))


def _place(name: str) -> tuple[str, ...]:
    row, kind = PLATFORMS.rows[name], KINDS_OF.get(name, name)
    place = row.title or name
    page = _section_of(name) or (row.sources[0] if row.sources else "")
    signs = row.recognised_by or ", ".join(filter(None, map(_sign, row.sign)))
    return f"[{place}]({page})" if page else place, f"`{name}`", signs, row.started_by, f"`{kind}`" if kind in KINDS else ""


def _sign(condition: str) -> str:
    """Return a condition for people: the names of its variables, without those that must not be set."""
    names = [] if condition.startswith(("!", "/")) else names_in(condition)
    return condition if condition.startswith("/") else " or ".join(f"`{name}`" for name in names)


def _section_of(name: str) -> str:
    """Where the pages of docs/ speak of a platform: its section, else a page of its own."""
    wanted = TITLES.get(name, name.replace("_", " "))
    for path in sorted((ROOT / "docs").glob("platforms*.md")):
        for title in re.findall(r"^## (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE):
            if title.lower().replace("_", " ") == wanted:
                return f"{path.name}#{title.lower().replace(' ', '-')}"
    return f"{name}.md" if (ROOT / "docs" / f"{name}.md").exists() else ""


def _events() -> str:
    rows = ((event.name, event.when, "; ".join(map(_field, event.fields))) for event in events.EVENTS)
    return _table(("event", "when", "more fields"), rows)


def _field(field: events.Field) -> str:
    kind = {str: "text", int: "whole number", float: "number", bool: "true or false", list: "list"}[field.type]
    return f"{field.name} ({', '.join(filter(None, (kind, field.meaning)))})"


def _rules_of_evidence() -> str:
    """Return the rules that explain an end. The kernel's count of kills for memory goes before all others."""
    memory, *others = blame.EVIDENCE
    of_records = [_rule(each, "exception-") for each in suspects.RECORD_RULES]
    rows = [_rule(memory), *of_records, *map(_rule, (suspects.waited_for, *others))]
    return _table(("rule", "it matches if"), rows)


def _rules_of_order() -> str:
    return _table(("rule", "it matches if"), map(_rule, blame.ORDER))


def _rule(rule: Callable[..., object], prefix: str = "") -> tuple[str, str]:
    return f"`{prefix}{rule.__name__.replace('_', '-')}`", _docstring(rule)


def _suspects() -> str:
    rows = ((str(i), f"`{each.__name__.replace('_', '-')}`", _docstring(each)) for i, each in enumerate(suspicion.RULES, 1))
    return _table(("", "rule", "it names a rank if"), rows)


def _starters() -> str:
    return _table(("command", "starts ranks", "method of ranklaunch in its place"), map(_starter, starters.shipped()))


def _starter(row: starters.Starter) -> tuple[str, ...]:
    conditions = [f"with {_codes(row.if_any, ' or ')}"] if row.if_any else []
    conditions += [f"without {_codes(row.if_none, ', ')}"] if row.if_none else []
    return _codes(row.names, ", "), " and ".join(conditions) or "always", row.method


def _codes(words: Iterable[str], between: str) -> str:
    return between.join(f"`{word}`" for word in words)


def _docstring(rule: object) -> str:
    return " ".join((rule.__doc__ or "").split())


TABLES: dict[str, Callable[[], str]] = {
    "variables": _variables,
    "removed variables": _removed_table,
    "every variable": _index_table,
    "known errors by their words": _errors_by_words,
    "known errors": _errors,
    "events": _events,
    "exit codes": _exit_codes,
    "rules of verdicts by evidence": _rules_of_evidence,
    "rules of verdicts by order": _rules_of_order,
    "rules of suspects": _suspects,
    "commands that start ranks": _starters,
    "order of platforms": _order_of_platforms,
    "places": _places,
    "spec values": _spec_values,
    **{f"platform {name.replace('_', ' ')}": _platform(name) for name in PLATFORMS},
}


def _table(head: Sequence[str], rows: Rows) -> str:
    lines = [_row(head), _row(["---"] * len(head)), *(_row(cells) for cells in rows)]
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
