"""Text without the secrets that well-known programs take in ways of their own: mysql -pX, aws configure set token X."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ranklaunch.redact.names import HIDDEN, is_value_secret

_OF_CURL = r"-[\d#aBfgGiIjJklLMnNOpqRsSvZ]{0,8}[uUb]"  # with others that take no value: -sSfu
# Programs that take a secret by an option of one letter, which means something else elsewhere; behind one of these, or joined to it.
_OPTIONS_OF = {
    **dict.fromkeys(("mysql", "mysqldump", "mysqladmin", "mariadb", "mariadb-dump"), ("-p", "", "")),
    "sshpass": (r"-p(?![0-9]{1,5}(?![^\s'\"]))", "-p", r"(?![0-9]{1,5}(?![^\s'\"]))[^\s'\",;)}\]]+"),  # not the port of the ssh behind it
    "redis-cli": ("-a", "-a", ""),
    "curl": (_OF_CURL, f"{_OF_CURL}|--user|--proxy-user|--cookie", ""),
    "wandb": ("", "login", r"[A-Za-z0-9_-]{20,}"),
    **dict.fromkeys((f"{tool} login" for tool in ("docker", "podman", "nerdctl", "buildah", "skopeo", "registry", "az")), ("", "-p", "")),
    "obsutil": ("", "-[ikt]", ""),
    "rclone config": ("", r"[\w-]{0,32}(?:key|pass|secret|token)[\w-]{0,32}", ""),
    "create secret": ("", r"--from-literal[\s=][\s'\",]{0,3}[\w.-]{1,64}", ""),  # of kubectl
}
_BETWEEN = r"['\"]?,?[\s=]\s{0,8}['\"]?"
_PROGRAM = rf"(?<![\w.-])(?:{'|'.join(name.replace(' ', _BETWEEN) for name in _OPTIONS_OF)})(?=[\s'\"])"
_PROGRAM_NAMES = tuple({name.split()[0] for name in _OPTIONS_OF})
_ANY_PROGRAM = "|".join(_PROGRAM_NAMES)
_WITHIN = r"[,;)}\]](?=\w)"  # a value, where it ends others
# aws configure set NAME VALUE; of a word that others use too, the value must look like one
_SET = (
    rf"(?i)((?<![\w.-])(?:(?:aws|conda|git|npm|pip3?|poetry|yarn){_BETWEEN}config(?:ure)?(?:{_BETWEEN}(?:set|--?[a-z-]{{1,32}})){{0,4}}"
    rf"|(set|--set|setenv|export|setx|-g?env|(?-i:ENV))){_BETWEEN}(?://[\w.:/-]{{1,128}}:)?)([A-Za-z_][\w.-]{{0,63}})({_BETWEEN})"
)
_SETTER = "(?i)set|export|config|env"  # few lines have one
_GUESSED = r"(?=.{0,64}\d).{6,}"
_UNIT = "\x1f"  # blank, for what is between words


def programs(text: str, ends: str = r"\s'\",;)}\]") -> str:
    """Text with the secrets hidden that programs in it take in ways of theirs: mysql -pX, aws configure set token X. ends: what no value
    holds."""
    if re.search(_SETTER, text):
        text = re.sub(rf"{_SET}((?<=')[^']+|(?<=\")[^\"]+|(?:[^{ends}]|{_WITHIN})+)", _set, text)
    if not re.search(_ANY_PROGRAM, text):
        return text
    starts = [0, *(found.start() for found in re.finditer(_PROGRAM, text))]
    return "".join(_of_program(text[start:end], ends) for start, end in zip(starts, [*starts[1:], len(text)]))


def _of_program(text: str, ends: str) -> str:
    name = re.match(_PROGRAM, text)
    if not name:
        return text
    joined, before, value = _OPTIONS_OF[" ".join(re.findall(r"[\w-]+", name[0]))]
    behind = rf"(?:{before}){_BETWEEN}(?:--?[a-z-]{{1,32}}{_BETWEEN}){{0,4}}"
    option = "|".join([behind] * bool(before) + [joined] * bool(joined))
    return re.sub(rf"(?<=[\s'\"])({option})(?![-\s]){value or f'(?:[^{ends}]|{_WITHIN})+'}", rf"\1{HIDDEN}", text)


def _set(found: re.Match[str]) -> str:
    before, guessed, name, between, value = found.groups()
    secret = is_value_secret(name, value) and (not guessed or re.fullmatch(_GUESSED, value, re.DOTALL))
    return f"{before}{name}{between}{HIDDEN}" if secret else found[0]


def in_words(words: Iterable[str]) -> list[str]:
    """A command's words, as `programs` does it with text."""
    words = list(words)
    if not any(
        word.endswith(_PROGRAM_NAMES) or re.fullmatch(r"(?:--)?set(?:env|x)?|export|config(?:ure)?|-g?env|ENV", word) for word in words
    ):
        return words
    hidden = programs(_UNIT.join(words), _UNIT).split(_UNIT)
    return hidden if len(hidden) == len(words) else words  # one of them has such a character itself
