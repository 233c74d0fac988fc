"""A search: a profile run, pruning of candidates that cannot fit, trials in the tuner's order, and a
second run of the best. The search starts no process: `next` returns experiments, `tell` takes results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ranklaunch.plan.ds_config import MICRO, STEPS, TRAIN
from ranklaunch.tune import memory, space, words
from ranklaunch.tune.autotuning import SECTION
from ranklaunch.tune.model import (
    CONFIRM,
    FAILED,
    HUNG,
    NOT_TRIED,
    OK,
    OUT_OF_MEMORY,
    PROFILE,
    PRUNED,
    RUNNING,
    STOPPED,
    TRIAL,
    WAITING,
    Candidate,
    Experiment,
    Result,
    Row,
    Settings,
)  # fmt: skip
from ranklaunch.tune.surrogate import features
from ranklaunch.tune.tuners import Choice, View, choose, score

FAILURES_OF_A_KIND = 2  # so many failed trials of one stage and offload, without a success, prune the rest of this kind
# Sections whose values change the memory of a sample: a candidate may fit with one value and not with another.
OF_SAMPLES = ("activation_checkpointing", "fp16", "bf16", "torch_autocast", "compile", "data_types", "zero_optimization.zenflow")


class Search:
    """State of a search. known: results of earlier starts. Trial i is chosen by the results of the first
    i - width + 1 trials, in the order of their choice: neither the order of their ends nor a restart changes the search."""

    def __init__(self, settings: Settings, known: Sequence[Result] = ()) -> None:
        self.settings = settings
        self.space = space.candidates(settings)
        self.reason = ""  # reason for the end of the search, "" before the end
        self._features = features(self.space)
        self._by_name = {candidate.name: candidate for candidate in self.space}
        self._known = {result.name: result for result in known if result.status != STOPPED}
        self._results: dict[str, Result] = {}
        self._started: set[str] = set()  # names of the experiments that next() returned
        self._picks: list[Candidate] = []
        self._profile = self._make_profile()
        self._confirmed = ""  # name of the trial that runs a second time
        self._refusals: dict[str, str] = {}  # reasons of candidates that cannot fit, by the formulas
        self._too_large: dict[str, str] = {}  # reasons of candidates that cannot fit, by trials that were out of memory
        self._handled = 0  # number of trials that _mark_too_large has handled
        self._take(PROFILE)
        self._advance()

    # For the coordinator

    @property
    def over(self) -> bool:
        return bool(self.reason) and not self._open()

    def next(self, free: int) -> tuple[Experiment, ...]:
        """Return experiments to start now. free: number of idle nodes."""
        result: list[Experiment] = []
        for experiment in self._open():
            if experiment.name not in self._started and experiment.nodes <= free:
                free -= experiment.nodes
                self._started.add(experiment.name)
                result.append(experiment)
        return tuple(result)

    def tell(self, result: Result) -> None:
        """Take a result, and choose the next experiments. A stopped experiment may be started again."""
        if result.status == STOPPED:
            self._started.discard(result.name)
            return
        self._results[result.name] = result
        if result.name == PROFILE:
            self._refusals.clear()
        self._advance()

    @property
    def best(self) -> Result | None:
        """Return the best result of all trials, earlier starts included."""
        scores = [(score(result, self.settings.metric), result) for result in self._trials()]
        scored = [(value, result) for value, result in scores if value is not None]
        return max(scored, key=lambda pair: pair[0])[1] if scored else None

    @property
    def confirmation(self) -> Result | None:
        return self._results.get(f"{CONFIRM}_{self._confirmed}") if self._confirmed else None

    @property
    def planned(self) -> int:
        """Return the largest possible number of further experiments."""
        most = self.settings.max_trials - len(self._picks)
        to_choose = 0 if self.reason else min(most, len(self._remaining(self._with_results(0))))
        to_confirm = self.settings.confirm and not self._confirmed and not self.reason
        return to_choose + len(self._open()) + to_confirm

    @property
    def info(self) -> Mapping[str, float]:
        """Return the known facts of the model."""
        profile = self._results.get(PROFILE)
        measured = profile.info if profile else {}
        return {**measured, "stage": max(candidate.stage for candidate in self.space), **self.settings.info}

    @property
    def results(self) -> tuple[Result, ...]:
        """Return the results of this start and of earlier ones."""
        return tuple({**self._known, **self._results}.values())

    @property
    def rows(self) -> tuple[Row, ...]:
        broken = _broken_kinds(self._with_results())
        return tuple(self._row(candidate, broken) for candidate in self.space)

    def experiment(self, name: str) -> Experiment:
        """Return the experiment of a trial."""
        return self._experiment(self._by_name[name], TRIAL)

    # Choices

    def _trials(self) -> Iterator[Result]:
        results = {**self._known, **self._results}
        return (results[candidate.name] for candidate in self.space if candidate.name in results)

    def _open(self) -> list[Experiment]:
        """Return chosen experiments without a result."""
        if self._needs_profile:
            return [self._profile]
        chosen = [self._experiment(candidate, TRIAL) for candidate in self._picks if candidate.name not in self._results]
        if self._confirmed and not self.confirmation:
            chosen.append(self._experiment(self._by_name[self._confirmed], CONFIRM))
        return chosen

    @property
    def _needs_profile(self) -> bool:
        return PROFILE not in self._results and not self.settings.info

    def _take(self, name: str) -> None:
        """Use the result of an earlier start of an experiment, if any."""
        if name in self._known:
            self._results[name] = self._known[name]

    def _advance(self) -> None:
        while not self._needs_profile and not self.reason:
            choice = self._choice()
            if choice is None:
                return
            if choice.candidate is None:
                self._finish(choice.reason)
                return
            self._picks.append(choice.candidate)
            self._take(choice.candidate.name)

    def _choice(self) -> Choice | None:
        """Return the next choice, None while results are missing that the choice depends on."""
        many = len(self._picks)
        if many >= self.settings.max_trials:
            return Choice(None, f"{many} trials are the limit (--max-trials)") if self._with_results(many) is not None else None
        trials = self._with_results(max(0, many - self.settings.width + 1))
        if trials is None:
            return None
        choice = choose(self._view(trials))
        if choice.candidate is None and len(trials) < many:
            trials = self._with_results(many)
            return choose(self._view(trials)) if trials is not None else None
        return choice

    def _with_results(self, count: int | None = None) -> list[tuple[Candidate, Result]] | Any:
        """Return the first `count` trials with their results, None if a result is missing. count None: all trials that have a result."""
        if count is None:
            return [(candidate, self._results[candidate.name]) for candidate in self._picks if candidate.name in self._results]
        picks = self._picks[:count]
        if any(candidate.name not in self._results for candidate in picks):
            return None
        return [(candidate, self._results[candidate.name]) for candidate in picks]

    def _view(self, trials: list[tuple[Candidate, Result]]) -> View:
        pending = tuple(self._picks[len(trials) :])
        return View(self.settings, self.space, self._remaining(trials), tuple(trials), pending, self._features)

    def _finish(self, reason: str) -> None:
        best = self.best
        self.reason = reason
        if best and self.settings.confirm:
            self._confirmed = best.name
            self._take(f"{CONFIRM}_{best.name}")

    def _remaining(self, trials: Sequence[tuple[Candidate, Result]]) -> tuple[Candidate, ...]:
        """Return candidates that may be tried: the reserve only if nothing else remains and nothing fitted."""
        chosen, broken = {candidate.name for candidate in self._picks}, _broken_kinds(trials)
        self._mark_too_large(trials)
        remaining = [candidate for candidate in self.space if candidate.name not in chosen and not self._why_not(candidate, broken)]
        usual = [candidate for candidate in remaining if not candidate.reserve]
        if usual or len(trials) < len(self._picks) or any(result.status == OK and not candidate.reserve for candidate, result in trials):
            return tuple(usual)
        return tuple(remaining)

    # Pruning

    def _mark_too_large(self, trials: Sequence[tuple[Candidate, Result]]) -> None:
        """Mark candidates that cannot fit, by trials that were out of memory."""
        for failed, _ in (pair for pair in trials[self._handled :] if pair[1].status == OUT_OF_MEMORY):
            for candidate in self.space:
                comparable = candidate.name not in self._too_large and _has_equal_samples(candidate, failed)
                if comparable and memory.needs_no_less(self.settings, self.info, candidate, failed):
                    self._too_large[candidate.name] = f"{failed.name} was out of memory"
        self._handled = max(self._handled, len(trials))

    def _why_not(self, candidate: Candidate, broken: Mapping[tuple[int, str], str]) -> str:
        """Return the reason not to try a candidate, "" for none."""
        if candidate.name not in self._refusals:
            self._refusals[candidate.name] = memory.refusal(self.settings, self.info, candidate)
        name, kind = candidate.name, (candidate.stage, candidate.offload)
        return self._refusals[name] or self._too_large.get(name, "") or broken.get(kind, "")

    # Experiments and rows

    def _experiment(self, candidate: Candidate, kind: str) -> Experiment:
        steps = {"start_profile_step": self.settings.start_step, "end_profile_step": self.settings.end_step}
        config = {**candidate.config, SECTION: {"enabled": True, **steps}}
        name = candidate.name if kind == TRIAL else f"{kind}_{candidate.name}"
        args = words.mapped(candidate.config, self.settings.arg_mappings)
        return Experiment(name, kind, config, self.settings.nodes, self.settings.slots, args)

    def _make_profile(self) -> Experiment:
        """Return a run of one sample on each rank at the highest stage, which needs the least memory."""
        last = max(self.space, key=lambda candidate: (candidate.stage, -candidate.reserve, -bool(candidate.offload)))
        config = {**last.config, TRAIN: self.settings.replicas, MICRO: 1, STEPS: 1, "memory_breakdown": True}
        args = words.mapped(config, self.settings.arg_mappings)
        section = {"enabled": True, "model_info": {"profile": True}}
        return Experiment(PROFILE, PROFILE, {**config, SECTION: section}, self.settings.nodes, self.settings.slots, args)

    def _row(self, candidate: Candidate, broken: Mapping[tuple[int, str], str]) -> Row:
        point = (candidate.name, candidate.stage, candidate.micro, candidate.steps, candidate.offload, candidate.others)
        result = self._results.get(candidate.name) or self._known.get(candidate.name)
        if result:
            value = result.metrics.get(self.settings.metric) if result.status == OK else None
            return Row(*point, result.status, value, result.reason, result.seconds)
        if candidate.name in self._started:
            return Row(*point, RUNNING)
        why_not = self._why_not(candidate, broken)
        if why_not:
            return Row(*point, PRUNED, None, why_not)
        only = "only if nothing else fits" if candidate.reserve else ""
        return Row(*point, NOT_TRIED, None, only or self.reason) if self.reason else Row(*point, WAITING, None, only)


def _has_equal_samples(one: Candidate, other: Candidate) -> bool:
    """Return True if a sample needs equal memory in both candidates."""
    return all(one.others.get(path) == other.others.get(path) for path in {**one.others, **other.others} if path.startswith(OF_SAMPLES))


def _broken_kinds(trials: Sequence[tuple[Candidate, Result]]) -> dict[tuple[int, str], str]:
    """Return stages and offloads with several failed trials and no success, each with the reason."""
    failures: dict[tuple[int, str], int] = {}
    fine = {(candidate.stage, candidate.offload) for candidate, result in trials if result.status == OK}
    for candidate, result in trials:
        kind = (candidate.stage, candidate.offload)
        if result.status in (FAILED, HUNG) and kind not in fine:
            failures[kind] = failures.get(kind, 0) + 1
    return {kind: _broken(kind, count) for kind, count in failures.items() if count >= FAILURES_OF_A_KIND}


def _broken(kind: tuple[int, str], count: int) -> str:
    stage, offload = kind
    return f"{count} trials of stage {stage}{f' with {offload} offload' if offload else ''} failed and none succeeded"
