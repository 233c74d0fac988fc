"""What is called like a secret, and what looks like one."""

from __future__ import annotations

import functools
import re

HIDDEN = "***"
_SECRET_WORDS = {"pwd", "pw", "pass", "pat", "jwt", "cred", "credential", "auth", "sshpass"}
_KEYS_OF = (
    "api", "access", "secret", "private", "priv", "account", "encryption", "storage", "signing", "master", "hmac", "license",
    "subscription", "ssh", "deploy",
)  # fmt: skip
_TOKENS_OF = ("id", "hf", "api", "access", "auth", "refresh")  # where there are several, too
_ONE_TOKEN_OF = ("bearer", "session", "csrf", "git", "github", "gitlab", "wandb", "slack", "bot", "jwt", "sas", "user")
# From the last the key of the muster may follow.
_SECRET_PAIRS = {*((word, "key") for word in _KEYS_OF), *((word, "token") for word in _TOKENS_OF), ("job", "uid")}
_SECRET_ENDS = (
    "password", "passwd", "passphrase", "passcode", "secret", "accesskeyid", *map("".join, _SECRET_PAIRS),
    *(f"{who}{word}" for who in ("db", "user", "root", "admin", "redis", "my", "store", "key") for word in ("pass", "pwd", "pw")),
    *(f"{word}token" for word in _ONE_TOKEN_OF), "密码", "口令", "密钥", "令牌",
)  # fmt: skip
# Words of vocabulary and of counts, not of access: anywhere beside token, directly before it, and directly behind it.
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
_PLAIN_WITH = {"pass": {"rate", "ratio", "forward", "backward", "count", "low", "high", "band"}, "pw": {"conv"}}  # over data; of filters
STEMS = "secret|pass|pwd|pw|token|key|auth|cred|jwt|pat|ak|sk|密码|口令|密钥|令牌"  # one is in whatever is called like a secret
_PLACES = ("PWD", "OLDPWD", "SSH_AUTH_SOCK")  # of a shell
_OURS = ("RANKLAUNCH_PASS", "option --pass")  # what is passed on to the program
_PLACE = r"(?:~|\.{0,2})/.*"
_KEY_FILE = r".*\.(?:pem|key|crt|cer|pub|json|ya?ml|txt)"
_PLAIN = rf"(?is)[\d.,:]*|{_PLACE}|{_KEY_FILE}"
_MACHINE_MADE = r"(?=.{0,64}\d)(?=.{0,64}[A-Za-z])[A-Za-z0-9+=]{16,}"
_DURATION = r"\d{1,6}(?:\.\d{1,6}|\.?\d{0,6}\s?(?:ms|us|ns|s|min|%))"  # forward pass: 12.3 ms
_BASE64 = r"(?=.*[A-Z])(?=.*[a-z])(?=.*\d)[A-Za-z0-9+][A-Za-z0-9+/]{38,512}={0,2}"
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
    return bool(found) and name not in (*_PLACES, *_OURS) and not plain and not of_way


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


def hidden_as(value: str) -> str:
    """With the quotes that it has."""
    quote = value[0] if value[0] in "'\"" else ""
    return f"{quote}{HIDDEN}{quote}"
