"""What ran, how it ended, who and why, what to do and where the time went: the first screen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ranklaunch.errors import counted, numbered
from ranklaunch.report import model
from ranklaunch.report.formats import words
from ranklaunch.report.formats.page.axis import percent
from ranklaunch.report.formats.page.kinds import look
from ranklaunch.report.formats.page.markup import Html, cut, joined, scrolling, tag
from ranklaunch.report.model import Accounting, Culprit, Report
from ranklaunch.verdict import blame

MOST_FAILURES = 6
MOST_NOTES = 6
MOST_LINES = 14  # of the culprit
MOST_LINE = 400
CALLED = {model.SUCCEEDED: "Succeeded", model.FAILED: "Failed", "stopped": "Stopped", model.UNFINISHED: "Unfinished"}


def title(report: Report) -> str:
    return f"{report.job.name or 'ranklaunch report'}: {report.outcome}"


def header(report: Report) -> Html:
    code = f" with exit code {report.exit_code}" if report.exit_code is not None else ""
    outcome = CALLED.get(report.outcome, report.outcome)
    heading = tag("h1", tag("span", outcome, class_="outcome"), tag("span", code, class_="code"))
    parts = [
        _job(report),
        heading,
        tag("p", _reason(report), class_="reason"),
        tag("div", _facts(report), _last_lines(report.culprit), class_="who-and-why"),
    ]
    return tag("header", *parts, class_=f"verdict {look_of(report.outcome)}")


def look_of(outcome: str) -> str:
    return outcome if outcome in CALLED else model.UNFINISHED


def _job(report: Report) -> Html:
    job = report.job
    about = " · ".join(_about(report))
    command = tag("code", cut(" ".join(job.command), 600), class_="command") if job.command else ""
    return joined((tag("p", tag("b", job.name or report.folder), " ", tag("span", about), class_="job"), command))


def _about(report: Report) -> Iterator[str]:
    job = report.job
    if job.method or job.platform:
        yield " on ".join(filter(None, (job.method, job.platform)))
    if job.nodes:
        yield f"{counted(len(job.nodes), 'node')}, {counted(job.world_size, 'rank')}{f', {job.accelerator}' if job.accelerator else ''}"
    yield counted(len(report.attempts), "attempt") if len(report.attempts) > 1 else f"attempt {report.attempts[-1].number}"
    restarts = sum(len(each.rounds) - 1 for each in report.attempts)
    if restarts:
        yield f"{counted(restarts, 'restart')} in place"
    if report.began:
        yield f"{words.clock(report.began)} UTC, {words.long(report.ended - report.began)}"


def _reason(report: Report) -> str:
    return report.reason or (words.unfinished(report) if report.outcome == model.UNFINISHED else words.NO_REASON)


# Who, why, what to do


def _facts(report: Report) -> Html:
    return tag("dl", *(joined((tag("dt", name), tag("dd", *told))) for name, told in _told(report)), class_="facts")


def _told(report: Report) -> Iterator[tuple[str, Iterable[object]]]:
    last = report.attempts[-1]
    if report.culprit:
        yield from _blame(report.culprit)
    second = words.apart(report)
    if second:
        yield "A second cause", (joined(tag("p", words.failure(each)) for each in second),)
    rest = [each for each in last.failures if each not in second]
    if rest:
        others = ", ".join(words.who(each) for each in rest[:MOST_FAILURES])
        more = len(rest) - MOST_FAILURES
        yield "Failed too", (f"{others}{f' and {more} more' if more > 0 else ''}",)
    if last.because:
        yield "Why this verdict", ("; ".join(last.because),)
    if last.suspect_host:
        host = last.suspect_host
        yield "Leave out", (tag("b", host.host), f" (node {host.node}) the next time: {host.why}")
    if last.hangs:
        yield "Hang", _hang(report)
    if last.stop:
        yield "Stop", (last.stop,)
    if last.notes:
        yield "Note", (joined(tag("p", note) for note in last.notes[:MOST_NOTES]),)
    if last.missing:
        yield "Missing", (f"Of {numbered(last.missing, 'node')} nothing is here: what follows is what the others tell.",)
    unended = [each.node for each in last.rounds[-1].nodes if each.state == "unfinished"]
    if unended and report.outcome != model.UNFINISHED:
        yield "Gone", (f"{numbered(unended, 'node')} stopped telling before the end: killed, or gone.",)
    figures = "; ".join(_figures(report.accounting))
    if figures:
        yield "Time", (f"{figures[0].upper()}{figures[1:]}.",)


def _blame(culprit: Culprit) -> Iterator[tuple[str, Iterable[object]]]:
    at = f" at {culprit.time[:19].replace('T', ' ')}" if culprit.time else ""
    memory = "; the kernel killed it for memory" if culprit.out_of_memory else ""
    end = words.end(culprit.exit_code, culprit.signal)
    yield "Who", (tag("b", words.who(culprit)), f"{f', {end}' if end else ''}{at}{memory}")
    error = culprit.error
    if culprit.meaning:
        meaning = f"{culprit.meaning[0].upper()}{culprit.meaning[1:]}."
        yield ("What to do", (tag("b", meaning),)) if culprit.out_of_memory else ("What it means", (meaning,))
    if not error:
        return
    yield "Why", (tag("code", cut(error.line, MOST_LINE)), tag("p", error.meaning) if error.meaning else "")
    again = blame.RETRY.get(error.retry, "")
    if error.remedy or again:
        yield "What to do", (tag("b", error.remedy), tag("p", f"Again: {again}.") if again else "")
    yield "Known as", (tag("code", error.name), " ", _source(error.source))


def _source(source: str) -> Html:
    """A link, to be followed by who wants to; nothing loads it."""
    return tag("a", source, href=source, rel="noreferrer") if source.startswith("https://") else tag("span", source)


def _hang(report: Report) -> Iterator[object]:
    hang = report.attempts[-1].hangs[-1]
    signals = f" ({', '.join(hang.signals)})" if hang.signals else ""
    yield f"{hang.what.capitalize()}{f' since {words.clock(hang.since)} UTC' if hang.since else ''}{signals}."
    suspects = [f"rank {each.rank} on node {each.node}: {each.why}" for each in hang.suspects[:4]]
    yield tag("p", "Suspects: ", "; ".join(suspects)) if suspects else ""


def _last_lines(culprit: Culprit | None) -> Html:
    if culprit is None or not culprit.last_lines:
        return Html("")
    lines = "\n".join(cut(line, MOST_LINE) for line in culprit.last_lines[-MOST_LINES:])
    name = culprit.log or culprit.name
    caption = tag("figcaption", "Last lines of ", tag("code", cut(name, 200)))
    return tag("figure", caption, scrolling("pre", f"Last lines of {cut(name, 200)}", lines), class_="lines")


# Where the time went


def time(report: Report) -> Html:
    told = report.accounting
    if told.wall_s <= 0:
        return Html("")
    parts = [(name, label, getattr(told.buckets, name)) for name, label in model.BUCKETS.items()]
    seen = [part for part in parts if part[2] > 0]
    about = "Where the time went: " + ", ".join(f"{label} {words.long(seconds)}" for _, label, seconds in seen)
    figure = tag("svg", *_stripes(seen, told.wall_s), class_="bucket", width="100%", height="28", role="img", aria_label=about)
    rows = [_bucket(name, label, seconds, told.wall_s) for name, label, seconds in seen]
    title = tag("h2", f"Where {words.long(told.wall_s)} went", id="spent")
    return tag("section", title, figure, tag("ul", *rows, class_="buckets"), aria_labelledby="spent")


def _bucket(name: str, label: str, seconds: float, wall_s: float) -> Html:
    told = f"{words.long(seconds)} · {100 * seconds / wall_s:.1f} %"
    return tag("li", tag("span", class_=f"swatch k-{look(name)}"), tag("b", label), tag("span", told))


def _stripes(seen: Iterable[tuple[str, str, float]], wall_s: float) -> Iterator[Html]:
    at = 0.0
    for name, label, seconds in seen:
        about = tag("title", f"{label}, {words.long(seconds)}")
        yield tag("rect", about, x=percent(at / wall_s), width=percent(seconds / wall_s), height="28", class_=f"k-{look(name)}")
        at += seconds


def _figures(told: Accounting) -> Iterator[str]:
    if told.goodput is not None:
        yield f"{100 * told.goodput:.1f} % of the time was productive"
    if not told.steps_seen:
        yield "no steps were found in what ranks wrote, so what of the running was productive is not known"
    if told.slow_s:
        yield f"the job was slow for {words.long(told.slow_s)}"
    if told.time_to_first_step_s is not None:
        yield f"first step after {words.long(told.time_to_first_step_s)}"
    if told.interruptions:
        yield counted(told.interruptions, "interruption")
    if told.time_to_recover_s:
        yield f"back at a first step after {', '.join(words.long(each) for each in told.time_to_recover_s[-3:])}"
    if told.gaps_s:
        yield f"{words.long(told.gaps_s)} between attempts, which is the platform’s"
