"""ranklaunch spec: write a platform's job spec that runs this program to standard output; with --submit, also submit it."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from ranklaunch.cli import job_spec, options
from ranklaunch.env.reader import Reader
from ranklaunch.env.settings import TEMPLATES
from ranklaunch.render.templates import Templates
from ranklaunch.specs import rendered
from ranklaunch.specs.model import KINDS
from ranklaunch.system import disk, submit
from ranklaunch.system.disk import DiskFiles

USAGE = "ranklaunch spec KIND [OPTIONS] [--] [PROGRAM [ARGS...]]"


def main(argv: list[str], env: Mapping[str, str], signals: object = None) -> int:
    parser = job_spec.Parser("spec", f"{__doc__} KIND: {', '.join(KINDS)}.", USAGE, job_spec.OPTIONS)
    if argv[:1] in (["-h"], ["--help"]):
        print(parser.help())
        return 0
    if not argv:
        parser.refuse(f"no KIND given: expected one of {', '.join(KINDS)}")
    if argv[0] not in KINDS:
        parser.refuse(job_spec.unknown_kind(argv[0]))
    parser.kind = argv[0]
    pairs, program = parser.split(argv[1:])
    spec = job_spec.read(argv[0], pairs, program)
    for warning in job_spec.warnings(spec):
        sys.stderr.write(f"ranklaunch: warning: {warning}\n")
    text = rendered(spec, Templates(_folders(dict(pairs), env), options.bounded))
    _write(text)
    return submit.send(spec.engine, text, env) if job_spec.SUBMIT.value in dict(pairs) else 0


def _folders(options: Mapping[str, str], env: Mapping[str, str]) -> tuple[str, ...]:
    reader = Reader(env, DiskFiles(), options)
    return tuple(disk.absolute(folder) for folder in reader.get(TEMPLATES).split(":") if folder)


def _write(text: str) -> None:
    """Write a text as UTF-8, in any locale."""
    if hasattr(sys.stdout, "buffer"):
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode())
        sys.stdout.flush()
    else:  # replaced by an object that takes only text
        sys.stdout.write(text)
