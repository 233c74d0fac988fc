"""Files of a search as text, and their reading by a later start. exps/NAME/result.json decides: the file
is written at the end of the experiment, and an experiment without the file is run again. results.json has
all experiments, for people and other programs. Writers rename each file into place."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from ranklaunch.fields import as_dict
from ranklaunch.files import Files, join, text_of
from ranklaunch.tune import words
from ranklaunch.tune.model import CONFIRM, KINDS, OK, STATUSES, STOPPED, Result, Settings, as_object
from ranklaunch.tune.search import Search
from ranklaunch.tune.space import digest

SCHEMA = 1
EXPERIMENTS, RESULT, RESULTS, SUMMARY, PLOT, OPTIMAL = (
    "exps", "result.json", "results.json", "summary.txt", "results.svg", "ds_config_optimal.json",
)  # fmt: skip
CONFIRMED = 0.1  # largest difference between the two runs of the best, as a share of the first
MOST_BYTES = 64 << 20


def identity(settings: Settings) -> str:
    """Return a digest of all conditions of a measurement: equal digests mean comparable measurements. Tuner, metric, seed, limits and
    candidates may differ."""
    facts = {
        "config": settings.config,
        "words": settings.words,
        "nodes": settings.nodes,
        "slots": settings.slots,
        "steps": [settings.start_step, settings.end_step],
        "mp_size": settings.mp_size,
        "arg_mappings": dict(settings.arg_mappings),
        "of": settings.of,
    }
    return digest(facts)


def result_text(result: Result, settings: Settings) -> str:
    """Return the text of RESULT in the folder of an experiment."""
    return _text({"schema": SCHEMA, "of": identity(settings), **as_dict(result)})


def document(search: Search, seconds: float = 0.0) -> dict[str, Any]:
    """Return the content of RESULTS. seconds: duration of the search up to now."""
    settings, best = search.settings, search.best
    return {
        "schema": SCHEMA,
        "of": identity(settings),
        "tuner": settings.tuner,
        "metric": settings.metric,
        "seed": settings.seed,
        "nodes": settings.nodes,
        "slots": settings.slots,
        "memory_bytes": settings.memory,
        "seconds": round(seconds, 3),
        "over": search.over,
        "reason": search.reason,
        "model": {key: value for key, value in search.info.items() if key != "stage"},
        "best": {"name": best.name, "value": best.metrics[settings.metric], "confirmed": confirmed(search)} if best else None,
        "candidates": [as_dict(row) for row in search.rows],
        "experiments": [as_dict(result) for result in search.results],
    }


def document_text(search: Search, seconds: float = 0.0) -> str:
    return _text(document(search, seconds))


def confirmed(search: Search) -> bool | None:
    """Return True if the second run of the best came within a tenth of the first, None without a second run."""
    share = difference(search)
    return None if share is None else abs(share) <= CONFIRMED


def difference(search: Search) -> float | None:
    """Return the difference of the second run of the best from the first, as a share of the first; None without a second run."""
    best, again = search.best, search.confirmation
    if best is None or again is None or again.status != OK or again.name != f"{CONFIRM}_{best.name}":
        return None
    first, second = best.metrics.get(search.settings.metric), again.metrics.get(search.settings.metric)
    return (second - first) / first if first and second else None


def _text(value: Mapping[str, Any]) -> str:
    return f"{json.dumps(_finite(value), indent=1)}\n"


def _finite(value: Any) -> Any:
    """Replace infinite numbers and NaN, which JSON does not have, by None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value


# Reading


def known(files: Files, folder: str, settings: Settings, exps: str = "") -> tuple[Result, ...]:
    """Return the results of earlier starts. Results of another configuration, program or size, and incomplete
    files, are left out. exps: folder of the experiments, if not in `folder`."""
    expected = identity(settings)
    known: dict[str, Result] = {}
    for one in _listed(files, folder, expected):
        known[one.name] = one
    place = exps or join(folder, EXPERIMENTS)
    for name in sorted(files.names(place)) if files.is_dir(place) else ():
        path = join(place, name)
        read = _result(as_object(text_of(files, join(path, RESULT), MOST_BYTES)), expected)
        if read and read.name == name:
            known[name] = read
        elif files.is_dir(path):
            known.pop(name, None)  # started again later, and not ended
    return tuple(known.values())


def _listed(files: Files, folder: str, expected: str) -> Sequence[Result]:
    """Return the results in RESULTS. expected: the required identity."""
    content = as_object(text_of(files, join(folder, RESULTS), MOST_BYTES))
    members = content.get("experiments")
    if content.get("of") != expected or not isinstance(members, list):
        return ()
    read = [_result({"schema": content.get("schema"), "of": expected, **each}, expected) for each in members if isinstance(each, dict)]
    return [each for each in read if each]


def _result(content: Mapping[str, Any], expected: str) -> Result | None:
    """Return a result from its JSON; None for a result of another search, an incomplete or a stopped one."""
    if content.get("of") != expected or content.get("schema") != SCHEMA or not isinstance(content.get("name"), str):
        return None
    if content.get("kind") not in KINDS or content.get("status") not in STATUSES or content["status"] == STOPPED:
        return None
    code, seconds = content.get("exit_code"), content.get("seconds")
    return Result(
        content["name"],
        content["kind"],
        content["status"],
        _numbers(content.get("metrics")),
        _numbers(content.get("info")),
        float(seconds or 0.0) if _is_number(seconds) else 0.0,
        str(content.get("reason") or ""),
        code if type(code) is int else None,
        str(content.get("folder") or ""),
    )


def _numbers(content: Any) -> dict[str, float]:
    return {key: float(value) for key, value in content.items() if _is_number(value)} if isinstance(content, dict) else {}


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and -1e300 < value < 1e300


# The best


def optimal(search: Search) -> dict[str, Any] | None:
    """Return the user's file with the values of the best, without "autotuning"; None without a best."""
    best = search.best
    if best is None:
        return None
    return dict(next(candidate.config for candidate in search.space if candidate.name == best.name))


def optimal_text(search: Search) -> str:
    best = optimal(search)
    return "" if best is None else f"{json.dumps(best, indent=2)}\n"


def optimal_words(search: Search, path: str) -> tuple[str, ...]:
    """Return the program's arguments for the best configuration. path: file with this configuration."""
    best = search.best
    return words.changed(search.settings.words, path, search.experiment(best.name).args) if best else search.settings.words
