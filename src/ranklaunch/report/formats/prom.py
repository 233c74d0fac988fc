"""A report as OpenMetrics text, for a collector of text files; the metrics of a job that has ended are its last state."""

from __future__ import annotations

from collections.abc import Iterator

from ranklaunch.report import model
from ranklaunch.report.model import Report

PREFIX = "ranklaunch_report"


def shown(report: Report) -> str:
    return "".join(f"{line}\n" for line in (*_lines(report), "# EOF"))


def _lines(report: Report) -> Iterator[str]:
    job = f'job="{_escaped(report.job.name)}"'
    told = report.accounting
    yield from _family("job", "info", "What ran.")
    info = (("platform", report.job.platform), ("method", report.job.method), ("outcome", report.outcome), ("folder", report.folder))
    labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in info)
    yield f"{PREFIX}_job_info{{{job},{labels}}} 1"
    yield from _family("bucket_seconds", "gauge", "Where the wall time of all attempts went; the sum is that time.", "seconds")
    for name in model.BUCKETS:
        yield f'{PREFIX}_bucket_seconds{{{job},bucket="{name[:-2]}"}} {_number(getattr(told.buckets, name))}'
    gauges: tuple[tuple[str, str, str, float | None], ...] = (
        ("wall_seconds", "seconds", "Wall time of all attempts, without what lies between them.", told.wall_s),
        ("gaps_seconds", "seconds", "Time between attempts.", told.gaps_s),
        ("slow_seconds", "seconds", "Part of the productive and repeated time in which steps took much longer than before.", told.slow_s),
        ("goodput_ratio", "ratio", "Productive share of the wall time.", told.goodput),
        ("time_to_first_step_seconds", "seconds", "From the start to the first step.", told.time_to_first_step_s),
        ("began_timestamp_seconds", "seconds", "Start of the first attempt.", report.began),
        ("ended_timestamp_seconds", "seconds", "End of the last attempt, or its last sign.", report.ended),
        ("exit_code", "", "Of the last attempt.", report.exit_code),
        ("nodes", "", "Nodes of the job.", len(report.job.nodes)),
        ("world_size", "", "Ranks of the job.", report.job.world_size),
    )  # fmt: skip
    for name, unit, meaning, value in gauges:
        if value is not None:
            yield from _family(name, "gauge", meaning, unit)
            yield f"{PREFIX}_{name}{{{job}}} {_number(value)}"
    yield from _counters(report, job)


def _counters(report: Report, job: str) -> Iterator[str]:
    totals = report.accounting
    counters = (
        ("attempts", "Starts of the job by its platform.", len(report.attempts)),
        ("restarts", "Starts of all ranks in place.", sum(len(each.rounds) - 1 for each in report.attempts)),
        ("interruptions", "Rounds that ended in a failure or a stop.", totals.interruptions),
        ("hangs", "Times that nothing moved.", sum(len(each.hangs) for each in report.attempts)),
    )
    for name, meaning, value in counters:
        yield from _family(name, "counter", meaning)
        yield f"{PREFIX}_{name}_total{{{job}}} {value}"
    yield from _family("recovery_seconds", "summary", "From a failure to the next first step.", "seconds")
    yield f"{PREFIX}_recovery_seconds_count{{{job}}} {len(totals.time_to_recover_s)}"
    yield f"{PREFIX}_recovery_seconds_sum{{{job}}} {_number(sum(totals.time_to_recover_s))}"


def _family(name: str, kind: str, meaning: str, unit: str = "") -> Iterator[str]:
    yield f"# TYPE {PREFIX}_{name} {kind}"
    if unit:
        yield f"# UNIT {PREFIX}_{name} {unit}"
    yield f"# HELP {PREFIX}_{name} {meaning}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.6f}".rstrip("0").rstrip(".")
