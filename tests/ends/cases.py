"""Cases of the oracle: whole jobs, with the ends of all nodes in each round, and the verdict of the code that judged them.

A file of tests/ends/cases has one case on each line, and in it:

    name, source    the test that started the job
    records         why its ends have no records, where they have none
    rounds          for each round: nodes (ends.json of each, without usual values), verdict (or verdicts, by node, where nodes differ),
                    and again (all ranks started again)

To record a file anew, run its tests, then make cases of what they left:

    RECORD_ENDS=/tmp/record/chaos pytest tests/cluster/test_chaos.py
    PYTHONPATH=tests python -m ends.cases /tmp/record/chaos chaos

| file | tests |
| --- | --- |
| judge | none: made by hand, for what no test of a job shows |
| causes | supervise/test_causes.py |
| chaos | cluster/test_chaos.py, the whole table |
| launchers | launchers/test_*.py: torchrun, mpirun, msrun, deepspeed, tensorflow, accelerate, restarts |
| restarts | restarts/test_restarts.py, cluster/test_restarts.py |
| hangs | cluster/test_hangs.py |
| programs | rankside/test_programs.py by spawn, with the records that the programs left |
| supervise | supervise/test_*.py: exits, training, stopping, got_over, filters, parting, scripts, placed |

Jobs that say nothing of a verdict are left out: those that succeeded, and those in which no rank or launcher ended. So is a job that the
replay does not judge as it was judged; stderr names it.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ranklaunch.ends import model
from ranklaunch.fields import as_dict, defaults, names
from ranklaunch.verdict.model import Ending, Judgement

FOLDER = Path(__file__).resolve().parent / "cases"
NO_RECORDS = "none: recorded before records existed"
ERROR = ("name", "kind", "retry")  # of a known error
CULPRIT = ("node", "rank", "exit_code", "signal", "out_of_memory")
LONG_AGO = 1e6  # seconds since 1970: smaller times were made by hand
CUTS = (600, 2000, 8000)  # characters of an output that are tried, from the last


def load() -> Iterator[dict[str, Any]]:
    for path in sorted(FOLDER.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            yield json.loads(line)


# Verdicts


def verdict(found: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a verdict that the oracle protects."""
    culprit = found["culprit"]
    error = culprit and culprit["error"]
    return {
        "outcome": found["outcome"],
        "exit_code": found["exit_code"],
        "culprit": culprit and {name: culprit[name] for name in CULPRIT},
        "error": error and {name: error[name] for name in ERROR},
    }


def of_judgement(judgement: Judgement) -> dict[str, Any]:
    return verdict(as_dict(judgement))


# Without usual values, so that a person can read a case


USUAL: dict[str, dict[str, Any]] = {
    kind.__name__: json.loads(json.dumps(defaults(kind), default=as_dict))
    for kind in (model.RankEnd, model.Launcher, model.JobFacts, model.MemoryKills, model.Tail)
}
_ENDING = Ending(Judgement("", 0, "")).as_json()
USUAL["Ending"] = {name: _ENDING[name] for name in _ENDING if name not in ("outcome", "exit_code", "reason", "at")}
PARTS = {"job": "JobFacts", "ending": "Ending", "memory": "MemoryKills"}


def compact(ends: Mapping[str, Any]) -> dict[str, Any]:
    """ends.json without what has its usual value."""
    parts = {name: _without(ends[name], USUAL[kind]) for name, kind in PARTS.items()}
    found = {**parts, "ends": [_compact_end(end) for end in ends["ends"]]}
    return {**found, **{name: ends[name] for name in ("stop", "state", "lost", "others") if ends.get(name)}}


def _compact_end(end: Mapping[str, Any]) -> dict[str, Any]:
    found = _without(end, USUAL["RankEnd"])
    if "launcher" in found:
        found["launcher"] = _without(found["launcher"], USUAL["Launcher"])
    return {name: value for name, value in found.items() if value is not None}


def _without(values: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in usual or value != usual[name]}


def whole(ends: Mapping[str, Any]) -> dict[str, Any]:
    """ends.json as it was."""
    parts = {name: {**USUAL[kind], **ends[name]} for name, kind in PARTS.items()}
    lost = [{"because": [], **each} for each in ends.get("lost", [])]
    return {
        "schema": model.SCHEMA, **parts, "stop": ends.get("stop"), "state": ends.get("state", {}), "lost": lost,
        "ends": [_whole_end(end) for end in ends["ends"]], "others": ends.get("others", []),
    }  # fmt: skip


def without_records(case: Mapping[str, Any]) -> dict[str, Any]:
    """A case as if its processes had recorded nothing."""
    found: dict[str, Any] = json.loads(json.dumps(case))
    for ends in (ends for told in found["rounds"] for ends in told["nodes"]):
        ends.pop("others", None)
        for end in ends["ends"]:
            end.pop("records", None)
    return found


def _whole_end(end: Mapping[str, Any]) -> dict[str, Any]:
    required = dict.fromkeys(set(names(model.RankEnd)) - set(defaults(model.RankEnd)))
    found = {**required, **USUAL["RankEnd"], **end}
    if found["launcher"] is not None:
        found["launcher"] = {**USUAL["Launcher"], **found["launcher"]}
        found["launcher"]["by_host"] = found["launcher"]["by_host"] or []
    return found


# From recordings


def recorded(folder: Path) -> Iterator[dict[str, Any]]:
    """Cases of all jobs that were recorded below a folder."""
    for path in sorted(folder.glob("*.json")):
        test = json.loads(path.read_text(encoding="utf-8"))
        groups: dict[Any, list[Any]] = {}
        for number, found in enumerate(test["found"]):
            job = found["ends"]["job"]
            whose = (job["name"], job["run"] if len(job["nodes"]) == 1 else "", job["attempt"])
            groups.setdefault(number if "call" in found else whose, []).append(found)
        for number, group in enumerate(groups.values()):
            name = test["test"].partition("tests/")[2] or test["test"]
            yield _with_small_times(_case(f"{name} #{number + 1}" if len(groups) > 1 else name, group))


def _case(name: str, group: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    rounds: dict[int, list[Any]] = {}
    for found in group:
        rounds.setdefault(found["ends"]["job"]["restart"], []).append(found)
    told = []
    for number in sorted(rounds):
        nodes = sorted(rounds[number], key=lambda each: each["ends"]["job"]["node_index"])
        verdicts = {str(each["ends"]["job"]["node_index"]): verdict(each["verdict"]) for each in nodes}
        common, *others = verdicts.values()
        said = {"verdicts": verdicts} if any(other != common for other in others) else {"verdict": common}
        again = {"again": True} if any(each.get("of") == "round.json" for each in nodes) else {}
        told.append({"nodes": [compact(each["ends"]) for each in nodes], **said, **again})
    records = {} if any('"records"' in json.dumps(each["nodes"]) for each in told) else {"records": NO_RECORDS}
    return {"name": name, "source": name.partition("::")[0], **records, "rounds": told}


def _with_small_times(case: dict[str, Any]) -> dict[str, Any]:
    times = list(_times(case))
    base = int(min(times)) - 1 if times and min(times) > LONG_AGO else 0
    found: dict[str, Any] = _shifted(case, base)
    return found


def _times(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        for name, inner in value.items():
            if name in ("at", "reported_at") and inner is not None:
                yield inner
            yield from _times(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _times(inner)


def _shifted(value: Any, base: int, name: str = "") -> Any:
    if isinstance(value, dict):
        return {key: _shifted(inner, base, key) for key, inner in value.items()}
    if name == "seen":
        return [[round(at - base, 6), kills] for at, kills in value]
    if isinstance(value, list):
        return [_shifted(inner, base) for inner in value]
    return round(value - base, 6) if name in ("at", "reported_at") and value is not None else value


def shortened(case: dict[str, Any], agrees: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """With shorter outputs, where the job is judged the same by them."""
    for end in (end for told in case["rounds"] for ends in told["nodes"] for end in ends["ends"]):
        texts = [(end, "output"), *((end[name], "text") for name in ("at_stop",) if end.get(name))]
        for holder, name in texts:
            before = holder.get(name) or ""
            for size in CUTS:
                if len(before) <= size * 3 // 2:
                    break
                holder[name] = before[before.find("\n", len(before) - size) + 1 :]
                if agrees(case):
                    break
                holder[name] = before
    return case


def main(folder: str, source: str) -> None:
    from ends.replay import differences  # it imports this module

    def agrees(case: dict[str, Any], *, verbose: bool = False) -> bool:
        try:
            found = differences(case)
        except (ValueError, KeyError, TypeError, AssertionError, StopIteration) as error:
            found = [repr(error)]
        if verbose:
            sys.stderr.writelines(f"{case['name']}: {each}\n" for each in found)
        return not found

    lines, known, left_out = [], set(), Counter[str]()
    for case in recorded(Path(folder)):
        roles = {end["role"] for told in case["rounds"] for ends in told["nodes"] for end in ends["ends"]}
        why = "" if roles & {"rank", "launcher"} else "no rank or launcher ended"
        outcomes = {ends["ending"]["outcome"] for told in case["rounds"] for ends in told["nodes"]}
        why = why or ("it succeeded" if outcomes == {"succeeded"} else "")
        why = why or ("each node is played by a process" if case["rounds"][0]["nodes"][0]["job"]["runs"] == "nodes" else "")
        why = why or ("" if agrees(case, verbose=True) else "judged otherwise")
        same = json.dumps({**case, "name": ""}, sort_keys=True)
        why = why or ("the same as another" if same in known else "")
        known.add(same)
        if why:
            left_out[why] += 1
            sys.stderr.write(f"left out, {why}: {case['name']}\n")
        else:
            lines.append(json.dumps(shortened(case, agrees), sort_keys=True, separators=(",", ":")))
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{source}.jsonl").write_text("".join(f"{line}\n" for line in sorted(lines)), encoding="utf-8")
    sys.stderr.write(f"{source}: {len(lines)} jobs; left out: {dict(left_out)}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
