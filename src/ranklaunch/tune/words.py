"""The program's arguments: what they say of the configuration, and how they are changed for an experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ranklaunch.plan.ds_config import MICRO, STEPS, path_of

NAMED = ("--deepspeed_config", "--deepspeed")
# Options of Hugging Face's TrainingArguments, whose Trainer refuses a configuration that says something else.
USUAL = {MICRO: "--per_device_train_batch_size", STEPS: "--gradient_accumulation_steps"}


def value(words: Sequence[str], option: str) -> str:
    """What the words give an option, "" where they do not."""
    for at, word in enumerate(words):
        name, equals, behind = word.partition("=")
        if name == option:
            return behind if equals else "".join(words[at + 1 : at + 2])
    return ""


def mappings(words: Sequence[str], given: Mapping[str, str]) -> dict[str, str]:
    """The user's, and the usual ones of options that are among the words."""
    usual = {key: option for key, option in USUAL.items() if any(word.partition("=")[0] == option for word in words)}
    return {**usual, **given}


def found(config: Mapping[str, Any], key: str) -> Any:
    """The value of a key by its path, or of the first of that name at any depth, as DeepSpeed looks for it; None where there is none."""
    at: Any = config
    for part in key.split("."):
        at = at.get(part) if isinstance(at, Mapping) else None
    if at is not None or "." in key:
        return at
    below = [member for member in config.values() if isinstance(member, Mapping)]
    return next((hit for hit in (found(member, key) for member in below) if hit is not None), None)


def mapped(config: Mapping[str, Any], arg_mappings: Mapping[str, str]) -> dict[str, str]:
    """What options have to be for a configuration: {"--per_device_train_batch_size": "4"}."""
    values = {option: found(config, key) for key, option in arg_mappings.items()}
    return {option: _text(each) for option, each in values.items() if each is not None and each != "auto" and not isinstance(each, Mapping)}


def _text(given: Any) -> str:
    return str(given).lower() if isinstance(given, bool) else str(given)


def changed(words: Sequence[str], path: str, args: Mapping[str, str]) -> tuple[str, ...]:
    """The same with these options, and with this file as the configuration. What was not there is appended."""
    named = next((name for name in NAMED if path_of(words) and _names(words, name)), NAMED[0])
    changed = list(words)
    for option, text in {**args, named: path}.items():
        _put(changed, option, text)
    return tuple(changed)


def _names(words: Sequence[str], name: str) -> bool:
    """Whether it is the option that gives the file: Megatron-DeepSpeed and others have a --deepspeed that is a switch."""
    given = value(words, name)
    return bool(given) and not given.startswith("-") and given == path_of(words)


def _put(words: list[str], option: str, text: str) -> None:
    for at, word in enumerate(words):
        name, equals, _ = word.partition("=")
        if name != option:
            continue
        if equals:
            words[at] = f"{option}={text}"
        else:
            words[at + 1 : at + 2] = [text]
        return
    words += [option, text]
