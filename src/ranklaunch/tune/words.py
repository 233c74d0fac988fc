"""Arguments of the program: options that repeat values of the configuration, and changes for an experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ranklaunch.plan.ds_config import MICRO, STEPS, path_of

NAMED = ("--deepspeed_config", "--deepspeed")
# Options of Hugging Face's TrainingArguments: the Trainer refuses a configuration with other values.
USUAL = {MICRO: "--per_device_train_batch_size", STEPS: "--gradient_accumulation_steps"}


def value(words: Sequence[str], option: str) -> str:
    """Return the value of an option, "" if it is not among the words."""
    for at, word in enumerate(words):
        name, equals, behind = word.partition("=")
        if name == option:
            return behind if equals else "".join(words[at + 1 : at + 2])
    return ""


def mappings(words: Sequence[str], of_user: Mapping[str, str]) -> dict[str, str]:
    """Return options of the program by key of the configuration: the user's mappings, and the usual ones for options among the words."""
    usual = {key: option for key, option in USUAL.items() if any(word.partition("=")[0] == option for word in words)}
    return {**usual, **of_user}


def lookup(config: Mapping[str, Any], key: str) -> Any:
    """Return the value of a key by its path, or of the first such key at any depth, as DeepSpeed does; None if there is none."""
    at: Any = config
    for part in key.split("."):
        at = at.get(part) if isinstance(at, Mapping) else None
    if at is not None or "." in key:
        return at
    sections = [member for member in config.values() if isinstance(member, Mapping)]
    return next((hit for hit in (lookup(member, key) for member in sections) if hit is not None), None)


def mapped(config: Mapping[str, Any], arg_mappings: Mapping[str, str]) -> dict[str, str]:
    """Return options with the values of a configuration: {"--per_device_train_batch_size": "4"}."""
    values = {option: lookup(config, key) for key, option in arg_mappings.items()}
    return {option: _text(each) for option, each in values.items() if each is not None and each != "auto" and not isinstance(each, Mapping)}


def _text(item: Any) -> str:
    return str(item).lower() if isinstance(item, bool) else str(item)


def changed(words: Sequence[str], path: str, args: Mapping[str, str]) -> tuple[str, ...]:
    """Return the words with other options and another configuration. path: of the configuration. args: the options; missing ones are
    appended."""
    named = next((name for name in NAMED if path_of(words) and _names(words, name)), NAMED[0])
    changed = list(words)
    for option, text in {**args, named: path}.items():
        _put(changed, option, text)
    return tuple(changed)


def _names(words: Sequence[str], name: str) -> bool:
    """Return True if this option names the configuration: in some programs, such as Megatron-DeepSpeed, --deepspeed is a switch."""
    file = value(words, name)
    return bool(file) and not file.startswith("-") and file == path_of(words)


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
