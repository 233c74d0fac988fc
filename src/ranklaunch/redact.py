"""Values, commands and environments without the secrets in them."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping

from ranklaunch.typed import Any

HIDDEN = "***"

_SECRET_WORDS = {"pwd", "pw", "pass", "pat", "jwt", "cred", "credential", "auth", "sshpass"}
_KEYS_OF = re.findall(
    r"\w+", "api access secret private priv account encryption storage signing master hmac license subscription ssh deploy"
)
_TOKENS_OF = ("id", "hf", "api", "access", "auth", "refresh")  # where there are several, too
_ONE_TOKEN_OF = ("bearer", "session", "csrf", "git", "github", "gitlab", "wandb", "slack", "bot", "jwt", "sas", "user")
# From the last the key of the muster may follow.
_SECRET_PAIRS = {*((word, "key") for word in _KEYS_OF), *((word, "token") for word in _TOKENS_OF), ("job", "uid")}
_SECRET_ENDS = (
    "password", "passwd", "passphrase", "passcode", "secret", "accesskeyid", *map("".join, _SECRET_PAIRS),
    *(f"{who}{word}" for who in ("db", "user", "root", "admin", "redis", "my") for word in ("pass", "pwd", "pw")),
    *(f"{word}token" for word in _ONE_TOKEN_OF), "密码", "口令", "密钥", "令牌",
)  # fmt: skip
# Words of vocabulary and of counts, not of access: anywhere beside token, directly before it, and directly behind it.
_COUNTS = {"num", "max", "min", "per", "mean", "special", "vocab"}
_PLAIN_BEFORE = {
    "pad", "eos", "bos", "eod", "eot", "unk", "sep", "cls", "mask", "image", "video", "audio", "new", "start", "stop", "end", "drop",
    "next", "generated", "target", "predicted", "sampled", "last", "first", "current", "prev", "output", "input", "delimiter",
}  # fmt: skip
_PLAIN_BEHIND = {
    "id", "ids", "drop", "dropout", "dispatcher", "mixer", "router", "type", "level", "limit", "count", "len", "length", "accuracy", "acc",
    "loss", "latency", "rate", "throughput", "speed", "time", "usage", "budget", "idx", "index", "indices", "pos", "position", "embed",
    "embedding", "embeddings", "emb", "logits", "probs", "logprobs", "shift", "merge", "size", "weight", "ratio", "num", "shape", "mask",
}  # fmt: skip
_PLAIN_WITH = {"pass": {"rate", "ratio", "forward", "backward", "count", "low", "high", "band"}, "pw": {"conv"}}  # over data; of filters
_PLACES = ("PWD", "OLDPWD", "SSH_AUTH_SOCK")  # of a shell
# A password may hold @ and /, so it goes on to the last @ before the next URL; digits and a slash after a host are a port.
_URL_PASSWORD = r"(?<=://)([^/\s:@]*):(?![0-9]+(?:/|$))((?:(?!://)\S)+)@"
# Who comes by HTTP with a name alone comes with a token; by ssh, or to a database, it is a user.
_URL_TOKEN = r"(?i)(https?://)[^/\s:@?#]+(?=(?::|:x-oauth-basic)?@)"
_URL_QUERY = r"(?<=[?&#])([\w.~-]{1,64})=([^&#\s'\"<>]+)"
_WEBHOOK = (  # whoever has it may write there
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
_NO_NAME = r"[\s{}'\"]|://"
_NAMED = r"([A-Za-z][\w-]{0,63}):\s+\S"  # X-Api-Key: ..., a header of another name
_PLACE = r"(?:~|\.{0,2})/.*"
_KEY_FILE = r".*\.(?:pem|key|crt|cer|pub|json|ya?ml|txt)"
_PLAIN = rf"(?is)[\d.,:]*|{_PLACE}|{_KEY_FILE}"
_MACHINE_MADE = r"(?=.{0,64}\d)(?=.{0,64}[A-Za-z])[A-Za-z0-9+=]{16,}"
_DURATION = r"\d{1,6}(?:\.\d{1,6}|\.?\d{0,6}\s?(?:ms|us|ns|s|min|%))"  # forward pass: 12.3 ms
_BASE64 = r"(?=.*[A-Z])(?=.*[a-z])(?=.*\d)[A-Za-z0-9+][A-Za-z0-9+/]{38,512}={0,2}"
_PIECE = r"""([ \t\r\n]+)|'([^']*)'|"([^"\\]*(?:\\.[^"\\]*)*)"|\\(.)|([^ \t\r\n'"\\]+)|(.)"""
_NO_WORDS = frozenset(" \t\r\n'\"\\")  # without any of these, it is one
_SHELL_VALUE = r"""('[^']*'|"(?:[^"\\]|\\.)*"|(?!-)[^\s'";&|]+)"""
_IN_COMMAND = (
    rf"(?<![\w.-])(-{{0,2}}[A-Za-z_][\w.-]{{0,63}})(=){_SHELL_VALUE}",
    rf"(?<![\w.-])(--?[A-Za-z][\w.-]{{0,63}})(\s{{1,8}}){_SHELL_VALUE}",
)
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
_ELEMENT = r"(<((?:[\w.-]{1,64}:)?[\w.-]{1,64})(?:\s[^<>]{0,200})?>)(?:<!\[CDATA\[)?[^<]+(?=</\2)"
_PROPERTY = r"(<name>\s{0,8}([\w.-]{1,128})\s{0,8}</name>\s{0,64}<value>)[^<]+(?=</value>)"  # as Hadoop's settings
# {"name": "HF_TOKEN", "value": "x"}, as Kubernetes has variables
_NAMED_VALUE = (
    r"(?i)((?<![\w.-])(?:name|key)['\"]?\s{0,8}[:=]\s{0,8}['\"]?([\w.-]{1,64})['\"]?\s{0,8},\s{0,8}"
    r"(?:['\"]?\w{1,32}['\"]?\s{0,8}[:=]\s{0,8}['\"]?[\w.-]{0,64}['\"]?\s{0,8},\s{0,8}){0,2}"  # members between
    r"['\"]?value['\"]?\s{0,8}[:=]\s{0,8})"
    r"('[^']*'|\"[^\"]*\"|[^\s,;{}\[\]'\"]+)"
)
# {"value": "x", "name": "HF_TOKEN"}
_VALUE_OF = (
    r"(?i)((?<![\w.-])value['\"]?\s{0,8}[:=]\s{0,8})('[^']{0,400}'|\"[^\"]{0,400}\"|[^\s,;{}\[\]'\"]{1,400})"
    r"(\s{0,8},\s{0,8}['\"]?(?:name|key)['\"]?\s{0,8}[:=]\s{0,8}['\"]?([\w.-]{1,64}))"
)
# What YAML has before a value: !!str, !!python/unicode, !vault, &anchor
YAML_MARK = r"(?:!![A-Za-z/_.:]{1,64}|!<tag:[^\s>]{1,64}>|!\w{1,32}|&\w{1,32})"
# {token: x, 'password': 'x'}, which is no JSON
_MEMBER = (
    rf"(?<![\w.-])(['\"]?)([A-Za-z_][\w.-]{{0,63}})(\1\s{{0,8}}:\s{{0,8}}(?:{YAML_MARK}\s{{1,4}}){{0,2}})"
    r"('[^']*'|\"[^\"]*\"|[^\s,;{}\[\]'\"]+)"
)
# How tokens begin that are told by their own form: a quick look, for few commands have any.
_MAY_BE_TOKEN = (
    r"(?<![A-Za-z0-9])(?:(?:hf_|sk-|[rs]k_live_|gh[opsur]_|github_pat_|gl(?:pat|dt|ft|soat|rt|cbt|imt|ptt|agent|oas)-|GR1348941|npm_|r8_|gsk_"
    r"|nvapi-|AIza|wandb_v1_|dckr_pat_|ya29\.|dop_v1_|shpat_|pypi-Ag|SG\.|A3T|ABIA|ACCA|AKIA|ASIA)[\w-]{16}|AccountKey=|sq0csp-"
    r"|(?:AC|SK)[a-z0-9]{32}|[0-9a-z]{32}-us\d|\d{8,10}:[\w-]{35}|eyJ[\w=-]{1,256}\.|[MNO][\w-]{23,25}\.[\w-]{6}\."
    r"|(?i:xox[abopsr]-\d|https://hooks\.slack\.com/services/T))"
)
_UNIT = "\x1f"  # blank, for what is between words
_THOUGHT_UP = r"(?=.*[A-Z])(?=.*[a-z])(?=.*\d)(?=.*[!@#$%^&*])[^\s/{}]{8,128}"


@functools.lru_cache(maxsize=1024)
def is_secret(name: str) -> bool:
    """Whether a variable or option of this name holds a secret. Platforms' own: S3_ACCESS_KEY_ID, MA_*_TOKEN, CRED*, ..."""
    words = re.split(r"[^a-z0-9\u4e00-\u9fff]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower())
    if words[-1] in ("env", "url", "uri", "name", "var"):  # where it is, and not what
        return False
    parts = [word[:-1] if word.endswith("s") and not word.endswith("ss") else word for word in words if word]
    if any(pair in _SECRET_PAIRS for pair in zip(parts, parts[1:])) or any(part.endswith(_SECRET_ENDS) for part in parts):
        return True
    if "token" in words:  # tokens, in the plural, are counted in training
        pairs = [*zip(words, words[1:])]
        plain = any((b == "token" and a in _PLAIN_BEFORE) or (a == "token" and b in _PLAIN_BEHIND) for a, b in pairs)
        return not plain and _COUNTS.isdisjoint(words)
    found = _SECRET_WORDS.intersection(parts)
    plain = any(found == {word} and not others.isdisjoint(parts) for word, others in _PLAIN_WITH.items())
    of_way = found == {"auth"} and parts[-2:-1] == ["auth"] and parts[-1] in ("type", "method", "backend", "mode", "scheme")
    return bool(found) and name not in _PLACES and not plain and not of_way


def tokens(text: str) -> str:
    """Text with what is a token by its own form hidden."""
    if not re.search(_MAY_BE_TOKEN, text):
        return text
    from ranklaunch.secret_patterns import TOKENS  # few plans need them

    return TOKENS.sub(HIDDEN, text)


def url(text: str) -> str:
    """Text with the password, the token and the signature of every URL in it hidden; the latter also where they stand without one."""
    if "://" not in text:
        return re.sub(_URL_QUERY, _query, text) if "&" in text else text
    text = re.sub(_WEBHOOK, rf"\1{HIDDEN}", text) if re.search(_WEBHOOKS, text) else text
    text = re.sub(_URL_PASSWORD, rf"\1:{HIDDEN}@", re.sub(_URL_TOKEN, rf"\1{HIDDEN}", text) if "@" in text else text)
    return re.sub(_URL_QUERY, _query, text) if "?" in text or "#" in text else text


def _query(found: re.Match[str]) -> str:
    name = found[1]
    secret = is_secret(name) or name.lower() == "key" or name.lower().endswith(("signature", "sig"))
    return f"{name}={HIDDEN}" if secret else found[0]


def headers(text: str) -> str:
    """Text with what stands behind Authorization:, Cookie: and Bearer hidden, and in elements of XML that are called like secrets."""
    if "</" in text:
        for pattern in (_ELEMENT, _PROPERTY):
            text = re.sub(pattern, lambda found: f"{found[1]}{HIDDEN}" if is_secret(found[2]) else found[0], text)
    lower = text.lower()
    if "cookie" in lower:
        text = re.sub(_COOKIE, rf"\1{HIDDEN}", text)
    if "authorization" in lower:
        text = re.sub(_HEADER, rf"\1{HIDDEN}", text)
    return re.sub(_BEARER, rf"\1{HIDDEN}", text) if "bearer" in lower else text


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


def argv(words: Iterable[str]) -> tuple[str, ...]:
    """A command without tokens, and with the values of secret options hidden, in --name=value, NAME=value and --name value form."""
    result: list[str] = []
    option = before = ""  # option: the one whose value may come next
    for word in _of_programs(words):
        if option and not _looks_like_option(word) and is_value_secret(option, word):
            result.append(HIDDEN)
            option = ""
            continue
        if " " in word and re.fullmatch(r"-[a-z]{0,7}c", before):  # bash -c, sh -ec
            result.append(_command(word))
            option, before = "", word
            continue
        name, equals, value = word.partition("=")
        named = (word.startswith("-") or bool(equals)) and not re.search(_NO_NAME, name)
        if named and equals:
            result.append(f"{name}={HIDDEN if is_value_secret(name, value) else _inside(value)}")
        else:
            result.append(_inside(word))
        # sshpass takes the password by -p, which is a port or a path elsewhere.
        option = "" if equals or not named else "password" if word == "-p" and before.endswith("sshpass") else name
        before = word
    return tuple(map(tokens, result))


def _of_programs(words: Iterable[str]) -> list[str]:
    words = list(words)
    if not any(
        word.endswith(_PROGRAM_NAMES) or re.fullmatch(r"(?:--)?set(?:env|x)?|export|config(?:ure)?|-g?env|ENV", word) for word in words
    ):
        return words
    hidden = programs(_UNIT.join(words), _UNIT).split(_UNIT)
    return hidden if len(hidden) == len(words) else words  # one of them has such a character itself


def _command(text: str) -> str:
    """What a shell is given to run, with the values of secret options and variables hidden."""
    for pattern in _IN_COMMAND:
        text = re.sub(pattern, _assigned, text)
    return programs(headers(url(text)))


def _assigned(found: re.Match[str]) -> str:
    name, between, value = found.groups()
    return f"{name}{between}{hidden_as(value)}" if is_value_secret(name, value.strip("'\"")) else found[0]


def is_value_secret(name: str, value: str) -> bool:
    """Whether the value of an option or a variable is a secret: by its name or, where that may mean anything, by how it looks too."""
    if is_secret(name):
        return not _is_place(name, value) and not (name.lower().endswith("pass") and re.fullmatch(_DURATION, value))
    last = re.split(r"[._-]", name.lower())[-1]
    if last == "key" and re.fullmatch(r"-{1,2}(?:[\w-]+\.)*key", name.lower()):
        return not re.fullmatch(_PLAIN, value)
    return last in ("key", "p", "ak", "sk") and _looks_secret(value)  # ak, sk: Huawei Cloud's access key and secret key


def _is_place(name: str, value: str) -> bool:
    """Where a secret is, and not what it is: RANKLAUNCH_SECRET_FILE=/run/key, CREDENTIALS=/etc/key.json."""
    named = re.search(r"(?i)(?:file|path|dir|folder|ssh[-_]?keys?)$", name)
    return bool(re.fullmatch(_PLACE, value, re.DOTALL) and (named or re.fullmatch(_KEY_FILE, value, re.DOTALL)))


def _looks_secret(value: str) -> bool:
    """A long word of letters and digits, or a password such as people think up; not a name, a number or a path."""
    if "/" in value:  # which a path has too, but in shorter words
        return bool(re.fullmatch(_BASE64, value)) and any(re.fullmatch(_MACHINE_MADE, part) for part in value.split("/"))
    return bool(re.fullmatch(_THOUGHT_UP, value)) or any(re.fullmatch(_MACHINE_MADE, part) for part in re.split("[-_.]", value))


def _looks_like_option(word: str) -> bool:
    return word.startswith("--") or (word.startswith("-") and len(word) == 2)


def text(value: str) -> str:
    """A setting's value with whatever secrets it holds hidden: options of a launcher, URLs."""
    value = headers(value)
    words = _words(value) or value.split(" ")  # where a quote is open, whatever it holds
    hidden = argv(words)
    return value if hidden == tuple(words) else " ".join(hidden)


def _words(value: str) -> list[str]:
    """As shlex.split, which takes a time that grows with the square of a word's length; nothing where it raises ValueError."""
    if _NO_WORDS.isdisjoint(value):
        return [value] if value else []
    words: list[str] = []
    word: list[str] | None = None
    for blank, single, double, escaped, plain, odd in re.findall(_PIECE, value, re.DOTALL):
        if odd:
            return []
        if blank:
            words += [] if word is None else ["".join(word)]
            word = None
        else:
            word = [] if word is None else word
            word.append(single or re.sub(r'\\(["\\])', r"\1", double) or escaped or plain)
    return words if word is None else [*words, "".join(word)]


def environment(env: Mapping[str, str]) -> dict[str, str]:
    return {name: HIDDEN if is_value_secret(name, value) else tokens(_inside(value)) for name, value in env.items()}


def _inside(value: str) -> str:
    """A value with what it holds hidden: members of JSON and NAME=value that are called like secrets, what URLs and headers hold."""
    if value.startswith(("{", "[")):
        import json  # most environments have none

        try:
            found = json.loads(value)
            hidden = _members(found)
        except (ValueError, RecursionError):
            return headers(url(_loose(_pairs(value))))
        return headers(url(value)) if hidden == found else json.dumps(hidden, separators=(",", ":"))
    if "\n" in value:
        return "\n".join(map(_inside, value.split("\n")))
    named = re.match(_NAMED, value) if ": " in value else None
    return (
        f"{named[1]}: {HIDDEN}"
        if named and is_secret(named[1]) and "authorization" not in named[1].lower()
        else headers(url(_loose(_pairs(value))))
    )


def _loose(value: str) -> str:
    """A value with the secrets hidden among the members of dictionaries in it, as Python, YAML and Hydra write them."""
    return named_values(re.sub(_MEMBER, _member, value)) if "{" in value and ":" in value else value


def _member(found: re.Match[str]) -> str:
    quote, name, between, value = found.groups()
    return f"{quote}{name}{between}{hidden_as(value)}" if is_value_secret(name, value.strip("'\"")) else found[0]


def named_values(text: str) -> str:
    """Text with the values hidden that stand beside the name of a secret: {"name": "HF_TOKEN", "value": "x"}."""
    return re.sub(_VALUE_OF, _value_of, re.sub(_NAMED_VALUE, _named_value, text)) if "value" in text.lower() else text


def _named_value(found: re.Match[str]) -> str:
    before, name, value = found.groups()
    return f"{before}{hidden_as(value)}" if is_value_secret(name, value.strip("'\"")) else found[0]


def _value_of(found: re.Match[str]) -> str:
    before, value, behind, name = found.groups()
    return f"{before}{hidden_as(value)}{behind}" if is_value_secret(name, value.strip("'\"")) else found[0]


def hidden_as(value: str) -> str:
    """With the quotes that it has."""
    quote = value[0] if value[0] in "'\"" else ""
    return f"{quote}{HIDDEN}{quote}"


def _pairs(value: str) -> str:
    """A value with the secrets among its own NAME=value hidden: --env=TOKEN=..., --export=ALL,TOKEN=..., AccountName=...;AccountKey=..."""
    if "=" not in value:
        return value
    parts = re.split(r"([,;\s])(?=[\w.-]{1,64}=)", value)
    return "".join(_assigned_to(*part.partition("=")) for part in parts)


def _assigned_to(name: str, equals: str, value: str) -> str:
    secret = value and re.fullmatch(r"['\"]?[\w.-]{1,64}", name) and is_value_secret(name.lstrip("'\""), value)
    end = name[0] if secret and name[0] in "'\"" and value.endswith(name[0]) else ""
    return f"{name}{equals}{HIDDEN}{end}" if secret else f"{name}{equals}{value}"


def _members(found: Any) -> Any:
    if isinstance(found, dict):
        beside = next((found[name] for name in ("name", "key") if isinstance(found.get(name), str)), "")
        return {name: _of_member(beside if name == "value" and beside else name, each) for name, each in found.items()}
    if isinstance(found, list):
        texts = all(isinstance(each, str) for each in found)
        return list(argv(found)) if texts else [_members(each) for each in found]
    return headers(url(_pairs(found))) if isinstance(found, str) else found


def _of_member(name: str, value: Any) -> Any:
    """Below the name of a secret, all text is one: {"token": {"value": "x"}}."""
    return _texts_hidden(value) if is_secret(name) else _members(value)


def _texts_hidden(found: Any) -> Any:
    if isinstance(found, dict):
        return {name: _texts_hidden(each) for name, each in found.items()}
    if isinstance(found, list):
        return [_texts_hidden(each) for each in found]
    return HIDDEN if isinstance(found, str) else found
