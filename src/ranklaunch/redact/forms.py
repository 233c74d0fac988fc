"""Forms of secrets in a text: by their name, as a member of a dictionary, in a URL or a header, behind an option of a program.

Functions with a text as parameter return the text with the secrets of one form hidden.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable

HIDDEN = "***"
_SECRET_WORDS = {"pwd", "pw", "pass", "pat", "jwt", "cred", "credential", "auth", "sshpass"}
_KEYS_OF = (
    "api", "access", "secret", "private", "priv", "account", "encryption", "storage", "signing", "master", "hmac", "license",
    "subscription", "ssh", "deploy",
)  # fmt: skip
_TOKENS_OF = ("id", "hf", "api", "access", "auth", "refresh")  # also in the plural: api_tokens
_ONE_TOKEN_OF = ("bearer", "session", "csrf", "git", "github", "gitlab", "wandb", "slack", "bot", "jwt", "sas", "user")
# ("job", "uid"): the key of the muster may be derived from the job's uid.
_SECRET_PAIRS = {*((word, "key") for word in _KEYS_OF), *((word, "token") for word in _TOKENS_OF), ("job", "uid")}
_SECRET_ENDS = (
    "password", "passwd", "passphrase", "passcode", "secret", "accesskeyid", *map("".join, _SECRET_PAIRS),
    *(f"{who}{word}" for who in ("db", "user", "root", "admin", "redis", "my", "store", "key") for word in ("pass", "pwd", "pw")),
    *(f"{word}token" for word in _ONE_TOKEN_OF), "密码", "口令", "密钥", "令牌",
)  # fmt: skip
# Words about vocabulary and counts, not access: anywhere in a name with "token", directly before "token", and directly behind it.
_COUNTS = {"num", "max", "min", "per", "mean", "special", "vocab"}
_PLAIN_BEFORE = {
    "pad", "eos", "bos", "eod", "eot", "unk", "sep", "cls", "mask", "image", "video", "audio", "new", "start", "stop", "end", "drop",
    "next", "generated", "target", "predicted", "sampled", "last", "first", "current", "prev", "output", "input", "delimiter", "ignore",
}  # fmt: skip
_PLAIN_BEHIND = {
    "id", "ids", "drop", "dropout", "dispatcher", "mixer", "router", "type", "level", "limit", "count", "len", "length", "accuracy", "acc",
    "loss", "latency", "rate", "throughput", "speed", "time", "usage", "budget", "idx", "index", "indices", "pos", "position", "embed",
    "embedding", "embeddings", "emb", "logits", "probs", "logprobs", "shift", "merge", "size", "weight", "ratio", "num", "shape", "mask",
    "dtype", "bytes", "capacity", "chunk", "stride", "dataset", "cache",
}  # fmt: skip
_PLAIN_WITH = {"pass": {"rate", "ratio", "forward", "backward", "count", "low", "high", "band"}, "pw": {"conv"}}  # passes; filters
_WAYS = ("type", "method", "backend", "mode", "scheme")  # auth_type and so on: no secret
STEMS = "secret|pass|pwd|pw|token|key|auth|cred|jwt|pat|ak|sk|密码|口令|密钥|令牌"  # each name of a secret contains one of these
_PLACES = ("PWD", "OLDPWD", "SSH_AUTH_SOCK")  # a shell's own variables
_OURS = ("RANKLAUNCH_PASS", "option --pass")  # options that are passed on to the program
_PLACE = r"(?:~|\.{0,2})/.*"
_KEY_FILE = r".*\.(?:pem|key|crt|cer|pub|json|ya?ml|txt)"
_PLAIN = rf"(?is)[\d.,:]*|{_PLACE}|{_KEY_FILE}"
_MACHINE_MADE = r"(?=.{0,64}\d)(?=.{0,64}[A-Za-z])[A-Za-z0-9+=]{16,}"
_DURATION = r"\d{1,6}(?:\.\d{1,6}|\.?\d{0,6}\s?(?:ms|us|ns|s|min|%))"  # forward pass: 12.3 ms
_BASE64 = r"(?=.*[A-Z])(?=.*[a-z])(?=.*\d)[A-Za-z0-9+][A-Za-z0-9+/]{38,512}={0,2}"
_THOUGHT_UP = r"(?=.*[A-Z])(?=.*[a-z])(?=.*\d)(?=.*[!@#$%^&*])[^\s/{}]{8,128}"


@functools.lru_cache(maxsize=1024)
def is_secret(name: str) -> bool:
    """Return True if a variable or option of this name holds a secret, also those of platforms: S3_ACCESS_KEY_ID, MA_*_TOKEN, CRED*."""
    words = re.split(r"[^a-z0-9\u4e00-\u9fff]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower())
    if words[-1] in ("env", "url", "uri", "name", "var"):  # the place of a secret, not the secret
        return False
    parts = [word[:-1] if word.endswith("s") and not word.endswith("ss") else word for word in words if word]
    if any(pair in _SECRET_PAIRS for pair in zip(parts, parts[1:])) or any(part.endswith(_SECRET_ENDS) for part in parts):
        return True
    return _is_token_secret(words) if "token" in words else _has_secret_word(name, parts)


def _is_token_secret(words: list[str]) -> bool:
    """Return False for tokens of a vocabulary, which training counts."""
    before = {one for one, other in zip(words, words[1:]) if other == "token"}
    behind = {other for one, other in zip(words, words[1:]) if one == "token"}
    return _COUNTS.isdisjoint(words) and _PLAIN_BEFORE.isdisjoint(before) and _PLAIN_BEHIND.isdisjoint(behind)


def _has_secret_word(name: str, parts: list[str]) -> bool:
    secret = _SECRET_WORDS.intersection(parts)
    is_plain = any(secret == {word} and not beside.isdisjoint(parts) for word, beside in _PLAIN_WITH.items())
    is_way = secret == {"auth"} and parts[-2:-1] == ["auth"] and parts[-1] in _WAYS
    return bool(secret) and name not in (*_PLACES, *_OURS) and not is_plain and not is_way


def is_value_secret(name: str, value: str) -> bool:
    """Return True if the value of an option or a variable is a secret: by its name or, for an ambiguous name, by its form."""
    if is_secret(name):
        return not _is_place(name, value) and not (name.lower().endswith("pass") and re.fullmatch(_DURATION, value))
    last = re.split(r"[._-]", name.lower())[-1]
    if last == "key" and re.fullmatch(r"-{1,2}(?:[\w-]+\.)*key", name.lower()):
        return not re.fullmatch(_PLAIN, value)
    return last in ("key", "p", "ak", "sk") and _looks_secret(value)  # ak, sk: Huawei Cloud's access key and secret key


def _is_place(name: str, value: str) -> bool:
    """Return True for the path of a secret: RANKLAUNCH_SECRET_FILE=/run/key, CREDENTIALS=/etc/key.json."""
    is_name_of_path = re.search(r"(?i)(?:file|path|dir|folder|ssh[-_]?keys?)$", name)
    return bool(re.fullmatch(_PLACE, value, re.DOTALL) and (is_name_of_path or re.fullmatch(_KEY_FILE, value, re.DOTALL)))


def _looks_secret(value: str) -> bool:
    """Return True for a long word of letters and digits, or a password as people choose them; not for a name, a number or a path."""
    if "/" in value:  # base64 has slashes; a path has shorter words between them
        return bool(re.fullmatch(_BASE64, value)) and any(re.fullmatch(_MACHINE_MADE, part) for part in value.split("/"))
    return bool(re.fullmatch(_THOUGHT_UP, value)) or any(re.fullmatch(_MACHINE_MADE, part) for part in re.split("[-_.]", value))


def hidden_as(value: str) -> str:
    """Return the replacement of a value, with the quotes of the value."""
    quote = value[0] if value[0] in "'\"" else ""
    return f"{quote}{HIDDEN}{quote}"


def hidden_value(match: re.Match[str]) -> str:
    """Return the text of a match, with the group `value` hidden if that is a secret by the group `name`."""
    if not is_value_secret(match["name"], match["value"].strip("'\"")):
        return match[0]
    begin, end = (at - match.start() for at in match.span("value"))
    return f"{match[0][:begin]}{hidden_as(match['value'])}{match[0][end:]}"


# Members of dictionaries as Python, YAML and Hydra write them, and NAME=value

# {"name": "HF_TOKEN", "value": "x"}: variables in Kubernetes
_NAMED_VALUE = (
    r"(?i)(?<![\w.-])(?:name|key)['\"]?\s{0,8}[:=]\s{0,8}['\"]?(?P<name>[\w.-]{1,64})['\"]?\s{0,8},\s{0,8}"
    r"(?:['\"]?\w{1,32}['\"]?\s{0,8}[:=]\s{0,8}['\"]?[\w.-]{0,64}['\"]?\s{0,8},\s{0,8}){0,2}"  # members between
    r"['\"]?value['\"]?\s{0,8}[:=]\s{0,8}"
    r"(?P<value>'(?:[^']|'(?=\w))*'|\"(?:[^\"]|\"(?=\w))*\"|[^\s,;{}\[\]'\"]+)"  # a quote before a letter is the value's own
)
# {"value": "x", "name": "HF_TOKEN"}
_VALUE_OF = (
    r"(?i)(?<![\w.-])value['\"]?\s{0,8}[:=]\s{0,8}(?P<value>'(?:[^']|'(?=\w)){0,400}'|\"(?:[^\"]|\"(?=\w)){0,400}\"|[^\s,;{}\[\]'\"]{1,400})"
    r"\s{0,8},\s{0,8}['\"]?(?:name|key)['\"]?\s{0,8}[:=]\s{0,8}['\"]?(?P<name>[\w.-]{1,64})"
)
# YAML's marks before a value: !!str, !!python/unicode, !vault, &anchor
YAML_MARK = r"(?:!![A-Za-z/_.:]{1,64}|!<tag:[^\s>]{1,64}>|!\w{1,32}|&\w{1,32})"
# {token: x, 'password': 'x'}, which is no JSON
_MEMBER = (
    rf"(?<![\w.-])(?P<quote>['\"]?)(?P<name>[A-Za-z_][\w.-]{{0,63}})(?P=quote)\s{{0,8}}:\s{{0,8}}(?:{YAML_MARK}\s{{1,4}}){{0,2}}"
    r"(?P<value>'[^']*'|\"[^\"]*\"|[^\s,;{}\[\]'\"]+)"
)


def loose(value: str) -> str:
    """Hide secrets among the members of dictionaries, as Python, YAML and Hydra write them."""
    return named_values(re.sub(_MEMBER, hidden_value, value)) if "{" in value and ":" in value else value


def named_values(text: str) -> str:
    """Hide values beside the name of a secret: {"name": "HF_TOKEN", "value": "x"}."""
    return re.sub(_VALUE_OF, hidden_value, re.sub(_NAMED_VALUE, hidden_value, text)) if "value" in text.lower() else text


def pairs(value: str) -> str:
    """Hide secrets among pairs NAME=value: --env=TOKEN=..., --export=ALL,TOKEN=..., AccountName=...;AccountKey=..."""
    if "=" not in value:
        return value
    parts = re.split(r"([,;\s])(?=[\w.-]{1,64}=)", value)
    return "".join(_assigned_to(*part.partition("=")) for part in parts)


def _assigned_to(name: str, equals: str, value: str) -> str:
    secret = value and re.fullmatch(r"['\"]?[\w.-]{1,64}", name) and is_value_secret(name.lstrip("'\""), value)
    end = name[0] if secret and name[0] in "'\"" and value.endswith(name[0]) else ""
    return f"{name}{equals}{HIDDEN}{end}" if secret else f"{name}{equals}{value}"


# URLs, headers of HTTP, elements of XML

# A password may contain @ and /, so it extends to the last @ before the next URL. Digits and a slash after a host are a port.
_URL_PASSWORD = r"(?<=://)([^/\s:@]*):(?![0-9]+(?:/|$))((?:(?!://)\S)+)@"
# In an HTTP URL, a name without a password is a token. In other URLs (ssh, databases) it is a user.
_URL_TOKEN = r"(?i)(https?://)[^/\s:@?#]+(?=(?::|:x-oauth-basic)?@)"
_URL_QUERY = r"(?<=[?&#])([\w.~-]{1,64})=([^&#\s'\"<>]+)"
_WEBHOOK = (  # the URL alone gives access
    r"(?<=://)(hooks\.slack\.com/|discord(?:app)?\.com/api/webhooks/\d{1,20}/|api\.telegram\.org/bot"
    r"|open\.(?:feishu\.cn|larksuite\.com)/open-apis/bot/(?:v2/)?hook/)[\w/:-]{8,}"
)
_WEBHOOKS = r"hooks\.slack|api/webhooks|api\.telegram|open\.(?:feishu|larksuite)"
_HEADER = (
    r"(?i)(\b(?:proxy-)?authorization['\"]?\s{0,4}[:=]\s{0,4}['\"]?(?:(?:bearer|basic|token|digest)\s{1,4})?)"
    r"[^\s'\",}][^'\",}\r\n]*"
)
_COOKIE = r"(?i)(\b(?:set-)?cookie['\"]?\s{0,4}[:=]\s{0,4}['\"]?)[\w.!#$%&*+^`|~-]{1,64}=[^'\"}\r\n]*"
_BEARER = r"(?i)\b(bearer\s{1,4})(?=[^\s\d]{0,64}\d)[\w.~+/=-]{6,}"
_ELEMENT = r"(<((?:[\w.-]{1,64}:)?[\w.-]{1,64})(?:\s[^<>]{0,200})?>)(?:<!\[CDATA\[)?[^<]+(?=</\2)"
_PROPERTY = r"(<name>\s{0,8}([\w.-]{1,128})\s{0,8}</name>\s{0,64}<value>)[^<]+(?=</value>)"  # Hadoop's settings


def url(text: str) -> str:
    """Hide passwords, tokens and signatures in URLs; in a query, also outside a URL."""
    if "://" not in text:
        return re.sub(_URL_QUERY, _query, text) if "&" in text else text
    text = re.sub(_WEBHOOK, rf"\1{HIDDEN}", text) if re.search(_WEBHOOKS, text) else text
    text = re.sub(_URL_PASSWORD, rf"\1:{HIDDEN}@", re.sub(_URL_TOKEN, rf"\1{HIDDEN}", text) if "@" in text else text)
    return re.sub(_URL_QUERY, _query, text) if "?" in text or "#" in text else text


def _query(match: re.Match[str]) -> str:
    name = match[1]
    secret = is_secret(name) or name.lower() == "key" or name.lower().endswith(("signature", "sig"))
    return f"{name}={HIDDEN}" if secret else match[0]


def headers(text: str) -> str:
    """Hide the values of Authorization:, Cookie: and Bearer, and of XML elements with the name of a secret."""
    if "</" in text:
        for pattern in (_ELEMENT, _PROPERTY):
            text = re.sub(pattern, _element, text)
    lower = text.lower()
    if "cookie" in lower:
        text = re.sub(_COOKIE, rf"\1{HIDDEN}", text)
    if "authorization" in lower:
        text = re.sub(_HEADER, rf"\1{HIDDEN}", text)
    return re.sub(_BEARER, rf"\1{HIDDEN}", text) if "bearer" in lower else text


def _element(match: re.Match[str]) -> str:
    return f"{match[1]}{HIDDEN}" if is_secret(match[2]) else match[0]


# Programs that take secrets in ways of their own: mysql -pX, aws configure set token X

_OF_CURL = r"-[\d#aBfgGiIjJklLMnNOpqRsSvZ]{0,8}[uUb]"  # may be joined to options without a value: -sSfu
# Programs with options for a secret that have another meaning in other programs. Per program: option joined to its value, option with the
# value behind it, and pattern of the value.
_OPTIONS_OF = {
    **dict.fromkeys(("mysql", "mysqldump", "mysqladmin", "mariadb", "mariadb-dump"), ("-p", "", "")),
    "sshpass": (r"-p(?![0-9]{1,5}(?![^\s'\"]))", "-p", r"(?![0-9]{1,5}(?![^\s'\"]))[^\s'\",;)}\]]+"),  # not the port of a following ssh
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
_WITHIN = r"[,;)}\]](?=\w)"  # such a character within a value, not at its end
# aws configure set NAME VALUE. Behind a common word such as `set`, the value must look like a secret.
_SET = (
    rf"(?i)((?<![\w.-])(?:(?:aws|conda|git|npm|pip3?|poetry|yarn){_BETWEEN}config(?:ure)?(?:{_BETWEEN}(?:set|--?[a-z-]{{1,32}})){{0,4}}"
    rf"|(set|--set|setenv|export|setx|-g?env|(?-i:ENV))){_BETWEEN}(?://[\w.:/-]{{1,128}}:)?)([A-Za-z_][\w.-]{{0,63}})({_BETWEEN})"
)
_SETTER = "(?i)set|export|config|env"  # quick check, because few lines have one
_GUESSED = r"(?=.{0,64}\d).{6,}"
_UNIT = "\x1f"  # joins words into a text; counts as a blank in patterns


def programs(text: str, ends: str = r"\s'\",;)}\]") -> str:
    """Hide secrets that programs take in ways of their own: mysql -pX, aws configure set token X. ends: characters that end a value."""
    if re.search(_SETTER, text):
        text = re.sub(rf"{_SET}((?<=')[^']+|(?<=\")[^\"]+|(?:[^{ends}]|{_WITHIN})+)", _set, text)
    if not re.search(_ANY_PROGRAM, text):
        return text
    starts = [0, *(match.start() for match in re.finditer(_PROGRAM, text))]
    return "".join(_of_program(text[start:end], ends) for start, end in zip(starts, [*starts[1:], len(text)]))


def _of_program(text: str, ends: str) -> str:
    name = re.match(_PROGRAM, text)
    if not name:
        return text
    joined, before, value = _OPTIONS_OF[" ".join(re.findall(r"[\w-]+", name[0]))]
    behind = rf"(?:{before}){_BETWEEN}(?:--?[a-z-]{{1,32}}{_BETWEEN}){{0,4}}"
    option = "|".join([behind] * bool(before) + [joined] * bool(joined))
    return re.sub(rf"(?<=[\s'\"])({option})(?![-\s]){value or f'(?:[^{ends}]|{_WITHIN})+'}", rf"\1{HIDDEN}", text)


def _set(match: re.Match[str]) -> str:
    before, guessed, name, between, value = match.groups()
    secret = is_value_secret(name, value) and (not guessed or re.fullmatch(_GUESSED, value, re.DOTALL))
    return f"{before}{name}{between}{HIDDEN}" if secret else match[0]


def in_words(words: Iterable[str]) -> list[str]:
    """Hide secrets in the words of a command, as `programs` does in a text."""
    words = list(words)
    if not any(
        word.endswith(_PROGRAM_NAMES) or re.fullmatch(r"(?:--)?set(?:env|x)?|export|config(?:ure)?|-g?env|ENV", word) for word in words
    ):
        return words
    hidden = programs(_UNIT.join(words), _UNIT).split(_UNIT)
    return hidden if len(hidden) == len(words) else words  # a word contains the joining character itself
