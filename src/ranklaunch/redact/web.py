"""Text without the secrets in its URLs, in headers of HTTP and in elements of XML."""

from __future__ import annotations

import re

from ranklaunch.redact.names import HIDDEN, is_secret

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
_ELEMENT = r"(<((?:[\w.-]{1,64}:)?[\w.-]{1,64})(?:\s[^<>]{0,200})?>)(?:<!\[CDATA\[)?[^<]+(?=</\2)"
_PROPERTY = r"(<name>\s{0,8}([\w.-]{1,128})\s{0,8}</name>\s{0,64}<value>)[^<]+(?=</value>)"  # as Hadoop's settings


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
