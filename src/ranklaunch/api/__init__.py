"""Python API: four commands as functions that return values (docs/api.md).

The functions are attributes of the package `ranklaunch`, which loads this module at their first use. They print nothing and never raise
SystemExit. A RanklaunchError is a mistake in the caller's input; its text is safe to print: secrets are hidden.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn, Union

from ranklaunch.catalogue import answer as answers
from ranklaunch.catalogue.answer import Answer
from ranklaunch.cli import job_spec, options
from ranklaunch.errors import ConfigError, RanklaunchError, UsageError, WaitError, reason
from ranklaunch.plan import model as plans
from ranklaunch.plan import planning
from ranklaunch.plan.model import Plan
from ranklaunch.render.templates import Templates
from ranklaunch.report import assembly
from ranklaunch.report import model as reports
from ranklaunch.report.model import Report
from ranklaunch.specs import rendered
from ranklaunch.specs.model import KINDS

__all__ = [
    "Answer", "ConfigError", "Plan", "RanklaunchError", "Report", "UsageError", "WaitError",
    "as_json", "explain_log", "make_plan", "make_spec", "read_report",
]  # fmt: skip

_planning = threading.Lock()  # compiled templates are shared between plans and keep the state of one plan


def make_plan(env: Mapping[str, str], argv: Sequence[str]) -> Plan:
    """Return the plan of one node: all actions of `ranklaunch run` there. Nothing is started or written.

    env: environment variables of the node's container. The environment of this process is not read.
    argv: words after `ranklaunch run`: options, then `--`, the program and its arguments. With `--node N` the plan is for node N.
    With `--root DIR` absolute paths, such as the path of a rank table, are looked up below DIR, else on this machine.
    Relative paths are looked up from the current folder.

    A Jinja template of the user is rendered in a child process, which ends before the call returns.
    Calls from several threads wait for each other.

    Raises UsageError for wrong words, ConfigError for a wrong environment, rank table or template, WaitError if the system has no
    process left to render a template, and TypeError if env or argv is not made of strings.
    """
    words = _checked(env, argv)
    with _fit_to_show(), _planning:
        request = options.read(_Parser("run", "", "make_plan(env, [OPTIONS, '--', PROGRAM, ARGS...])"), words, env, recorded=True).request
        index = planning.named_node(request)
        return planning.make_plan(request if index is None else planning.for_node(request, index))


def make_spec(kind: str, values: Mapping[str, object]) -> str:
    """Return the job specification, as printed by `ranklaunch spec KIND`.

    kind: the platform of the job, such as "volcano", "jobset", "slurm" or "modelarts".
    values: nested mapping with the keys of docs/spec-values.md, as in a file of `--values` and in the Helm chart.
    The key `engine` is replaced by kind.

    A note about a correct specification, such as a secret in its text, is a UserWarning (module warnings).

    Raises UsageError for an unknown kind, and ConfigError with all problems of the values.
    """
    with _fit_to_show():
        if kind not in KINDS:
            raise UsageError(job_spec.unknown_kind(kind))
        spec = job_spec.of_values(kind, values)
        text = rendered(spec, Templates())
    for note in job_spec.warnings(spec):
        warnings.warn(reason(note), UserWarning, stacklevel=2)
    return text


def read_report(folder: Union[str, os.PathLike[str]]) -> Report:  # noqa: UP007 - evaluated by typing.get_type_hints on Python 3.9
    """Return the report of a log folder, as shown by `ranklaunch report FOLDER`. Nothing is written, and no running job is
    asked.

    folder: the log folder of a job (`--log-dir`), the folder of one attempt, or a verdict.json. Times in the report are
    seconds since 1970.

    Raises ConfigError if the folder does not exist, or if nothing of a job can be read in it.
    """
    with _fit_to_show():
        return assembly.report(os.fspath(folder), time.time())


def explain_log(text: str) -> Answer:
    """Return the known facts about the errors in a log, as printed by `ranklaunch explain`. Any program may have written the log.

    text: the log. Only its last 16 MiB (as UTF-8), and of these the last 500,000 lines, are searched.

    The answer for a log without a known error has the kind "unknown". The function raises no error of its own.
    """
    log = answers.end_of_log(text.encode(errors="replace"))
    return answers.answer(log, answers.known_lines(log))


def as_json(value: Union[Plan, Report, Answer]) -> dict[str, Any]:  # noqa: UP007 - as above
    """Return the value as the command prints it with `--format json`: dicts, lists, strings, numbers, booleans and None.

    Schemas (docs/schemas.md): ranklaunch.plan/2 for a Plan, ranklaunch.report/1 for a Report, ranklaunch.explain/1 for an Answer.
    Within a schema's number, keys are only ever added. Secrets are hidden.

    Raises TypeError for any other value.
    """
    if isinstance(value, Plan):
        return plans.as_json(value)
    if isinstance(value, Report):
        return reports.as_json(value)
    if isinstance(value, Answer):
        return answers.as_json(value)
    msg = f"expected a Plan, a Report or an Answer, found {type(value).__name__}"
    raise TypeError(msg)


class _Parser(options.JobParser):
    """Parser that raises UsageError for --help, while the parser of a command prints the help and exits."""

    def _show_help(self) -> NoReturn:
        self.refuse("option --help: expected the words of a job")


def _checked(env: Mapping[str, str], argv: Sequence[str]) -> list[str]:
    """Return argv as a list. Raises TypeError if a word or a variable is not a string."""
    if isinstance(argv, str) or not all(isinstance(word, str) for word in argv):
        msg = f"argv: expected a sequence of strings, found {argv!r:.100}"
        raise TypeError(msg)
    pairs: Mapping[Any, Any] = env  # values may differ from the declared types
    wrong = sorted(str(name) for name, value in pairs.items() if not (isinstance(name, str) and isinstance(value, str)))
    if wrong:
        msg = f"env: expected strings as names and values, found others for {', '.join(wrong[:10])}"
        raise TypeError(msg)
    return list(argv)


@contextlib.contextmanager
def _fit_to_show() -> Iterator[None]:
    """Hide secrets and control characters in the text of a RanklaunchError, as the command line does."""
    try:
        yield
    except RanklaunchError as error:
        if isinstance(error, ConfigError):
            error.problems, error.hints = tuple(map(reason, error.problems)), tuple(map(reason, error.hints))
        error.args = (reason(str(error)),)
        raise
