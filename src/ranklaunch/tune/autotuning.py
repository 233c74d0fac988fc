"""Settings of a search, from the section "autotuning" of the user's DeepSpeed configuration, with DeepSpeed's
own keys (deepspeed/autotuning/constants.py), and from options, which have priority."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ranklaunch.errors import MANY_DIGITS, NESTED, ConfigError, nearest, unreadable
from ranklaunch.fields import NOTHING
from ranklaunch.plan import ds_config
from ranklaunch.showing import clipped
from ranklaunch.tune import words
from ranklaunch.tune.model import GRID, METRICS, THROUGHPUT, TUNERS, Settings

SECTION = "autotuning"
DEEPEST = 50  # levels of a configuration; DeepSpeed's own has five
# Keys with whole numbers: the least value of each.
WHOLE = {
    "start_profile_step": 0, "end_profile_step": 1, "tuner_early_stopping": 0, "tuner_num_trials": 1, "max_train_batch_size": 1,
    "min_train_batch_size": 1, "max_train_micro_batch_size_per_gpu": 1, "min_train_micro_batch_size_per_gpu": 1,
    "num_tuning_micro_batch_sizes": 1, "mp_size": 1,
}  # fmt: skip
SWITCHES = ("enabled", "fast", "overwrite")
TEXTS = ("results_dir", "exps_dir", "metric_path", "model_info_path")
CHOICES = {"metric": METRICS, "tuner_type": TUNERS}
KEYS = (*WHOLE, *SWITCHES, *TEXTS, *CHOICES, "arg_mappings", "model_info")
# Options of the command line, each with its key of the section.
OPTIONS = {
    "--tuner": "tuner_type", "--metric": "metric", "--max-trials": "tuner_num_trials", "--early-stop": "tuner_early_stopping",
    "--start-profile-step": "start_profile_step", "--end-profile-step": "end_profile_step", "--arg-mappings": "arg_mappings",
}  # fmt: skip
MOST = 1 << 40  # largest accepted whole number


class Options:
    """Section with the options merged in. Problems name the key or option as the user wrote it."""

    def __init__(self, section: Mapping[str, Any], options: Mapping[str, Any]) -> None:
        self.problems: list[str] = []
        self.warnings: list[str] = []
        self._values = {key: value for key, value in section.items() if value is not None}
        self._names = {key: f"{SECTION}.{key}" for key in section}
        for option, value in options.items():
            self._values[OPTIONS[option]], self._names[OPTIONS[option]] = _read(value), option

    def refuse(self, key: str, expected: str) -> None:
        self.problems.append(f"{self._names.get(key, key)} {shown(self._values.get(key))}: expected {expected}")

    def whole(self, key: str, default: int) -> int:
        value = self._values.get(key)
        if value is None:
            return default
        if is_whole(value, WHOLE[key]):
            return int(value)
        self.refuse(key, f"a whole number from {WHOLE[key]} on")
        return default

    def choice(self, key: str, default: str) -> str:
        value = self._values.get(key, default)
        if isinstance(value, str) and value in CHOICES[key]:
            return value
        near = nearest(value, CHOICES[key]) if isinstance(value, str) else ""
        self.refuse(key, f"{', '.join(CHOICES[key])}{near}")
        return default

    def switch(self, key: str, default: bool) -> bool:
        value = self._values.get(key, default)
        if isinstance(value, bool):
            return value
        self.refuse(key, "true or false")
        return default

    def mappings(self) -> dict[str, str]:
        value = self._values.get("arg_mappings", {})
        if not isinstance(value, Mapping):
            self.refuse("arg_mappings", 'an object such as {"train_micro_batch_size_per_gpu": "--batch-size"}')
            return {}
        wrong = [key for key, option in value.items() if not (isinstance(option, str) and option.startswith("-") and not option.isspace())]
        for key in wrong:
            self.problems.append(
                f"{self._names['arg_mappings']}.{key} {shown(value[key])}: expected an option of the program, such as --name"
            )
        return {key.strip(): option.strip() for key, option in value.items() if key not in wrong}

    def info(self) -> dict[str, float]:
        """Return facts of the model. Without a count of parameters, return {}: only this count saves the profile run."""
        value = self._values.get("model_info", {})
        if not isinstance(value, Mapping):
            self.refuse("model_info", 'an object such as {"num_params": 1000000000}')
            return {}
        count = value.get("num_params")
        if count is None:
            return {}
        if not is_whole(count, 1):
            self.problems.append(f"{SECTION}.model_info.num_params {shown(count)}: expected the number of parameters")
            return {}
        numbers = {key: each for key, each in value.items() if key.endswith("_per_gpu") and is_whole(each, 0)}
        return {"num_params": float(count), **{key: float(each) for key, each in numbers.items()}}

    def check_keys(self) -> None:
        for key in self._values:
            if key not in KEYS:
                self.warnings.append(f"{SECTION}.{key} is no key that DeepSpeed documents, and has no effect{nearest(key, KEYS)}")
        for key in TEXTS:
            if key in self._values and not (isinstance(self._values[key], str) and self._values[key]):
                self.refuse(key, "a path")

    def check_order(self, low_key: str, high_key: str) -> None:
        low, high = self._values.get(low_key), self._values.get(high_key)
        if type(low) is int and type(high) is int and low > high:
            self.problems.append(f"{self._names[low_key]} {low} is more than {self._names[high_key]} {high}")


def _read(value: Any) -> Any:
    """Return an option's text parsed as JSON, or the text itself if it is no JSON."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def is_whole(value: Any, least: int) -> bool:
    return type(value) is int and least <= value <= MOST


def shown(value: Any) -> str:
    return clipped(value if isinstance(value, str) else json.dumps(value, default=str, skipkeys=True))


def loads(text: str, path: str) -> dict[str, Any]:
    """Parse the user's file. Raises ConfigError."""
    try:
        config = ds_config.loads(text)
    except (ValueError, RecursionError) as error:
        why = unreadable(error)
        msg = f"{clipped(path)}: {why}" if why in (MANY_DIGITS, NESTED) else f"{clipped(path)} is no JSON: {why}"
        raise ConfigError(msg) from None
    if not isinstance(config, dict):
        msg = f"{clipped(path)}: expected an object, a DeepSpeed configuration"
        raise ConfigError(msg)
    return config


def settled(
    config: Mapping[str, Any], program: Sequence[str], nodes: int, slots: int, options: Mapping[str, Any] = NOTHING, **more: Any
) -> Settings:
    """Return the settings of a search. config: the user's, with its section "autotuning". program:
    arguments of the program. options: values of OPTIONS, {"--tuner": "random"}. more: other fields of
    Settings. Raises ConfigError with all problems."""
    if _depth(config) > DEEPEST:
        msg = f"the configuration is nested in more than {DEEPEST} levels"
        raise ConfigError(msg)
    section = config.get(SECTION) or {}
    if not isinstance(section, Mapping):
        msg = f'{SECTION} {shown(section)}: expected an object such as {{"fast": true}}'
        raise ConfigError(msg)
    values = Options(section, options)
    values.check_keys()
    for name in ("train_micro_batch_size_per_gpu", "train_batch_size"):
        values.check_order(f"min_{name}", f"max_{name}")
    without_section = {key: value for key, value in config.items() if key != SECTION}
    start, end = values.whole("start_profile_step", 3), values.whole("end_profile_step", 0)
    settings = Settings(
        config=without_section,
        section={**section, **{key: values.whole(key, 0) for key in WHOLE if key in section}},
        words=tuple(program),
        nodes=nodes,
        slots=slots,
        tuner=values.choice("tuner_type", GRID),
        metric=values.choice("metric", THROUGHPUT),
        max_trials=values.whole("tuner_num_trials", 50),
        early_stop=values.whole("tuner_early_stopping", 5),
        fast=values.switch("fast", True),
        start_step=start,
        end_step=end or start + 10,
        mp_size=_shared(without_section, values.whole("mp_size", 0), values.problems),
        arg_mappings=words.mappings(program, values.mappings()),
        info=values.info(),
        **more,
    )
    _check(settings, values)
    return replace(settings, warnings=(*settings.warnings, *values.warnings))


def _shared(config: Mapping[str, Any], ranks: int, problems: list[str]) -> int:
    """Return the number of ranks that share a model or a sequence. ranks: this number by the section, 0 if not set there."""
    if ranks:
        return ranks
    tensor = config.get("tensor_parallel")
    sizes = {
        "tensor_parallel.autotp_size": tensor.get("autotp_size", 1) if isinstance(tensor, Mapping) else 1,
        "sequence_parallel_size": config.get("sequence_parallel_size", 1),
    }
    product = 1
    for key, size in sizes.items():
        if is_whole(size, 0):
            product *= max(1, size)
        else:
            problems.append(f"{key} {shown(size)}: expected a whole number; or set {SECTION}.mp_size, the ranks that share a model")
    return product


def _check(settings: Settings, values: Options) -> None:
    if settings.end_step <= settings.start_step:
        values.problems.append(
            f"end_profile_step {settings.end_step}: expected more than start_profile_step {settings.start_step}, the last warm-up step"
        )
    if settings.ranks % settings.mp_size:
        values.problems.append(f"mp_size {settings.mp_size}: expected a divisor of the {settings.ranks} ranks of an experiment")
    elasticity = settings.config.get("elasticity")
    if isinstance(elasticity, Mapping) and elasticity.get("enabled"):
        values.problems.append('elasticity.enabled true: DeepSpeed chooses the batch sizes itself then; leave out "elasticity"')
    if values.problems:
        raise ConfigError(dict.fromkeys(values.problems))


def _depth(config: Any) -> int:
    """Return the depth of nesting, counted level by level: recursion would fail for deep nesting."""
    level, depth = [config], 0
    while level and depth <= DEEPEST:
        nested = [each.values() if isinstance(each, Mapping) else each for each in level if isinstance(each, (Mapping, list))]
        level, depth = [item for members in nested for item in members], depth + 1
    return depth
