"""Elements of HTML and SVG as text. Whatever is put in is escaped, but for what was made here."""

from __future__ import annotations

import re
from collections.abc import Iterable


class Html(str):
    """Is put into other elements as it is."""

    __slots__ = ()


# What steers a terminal, turns the direction of a line or is no character at all; of a text that is printable there is none.
_ODD = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb\ufffe\uffff\ud800-\udfff]")


def text(value: object) -> Html:
    if isinstance(value, Html):
        return value
    found = str(value).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;").replace("'", "&#39;")
    return Html(found if found.isprintable() else _ODD.sub(_escape, found))


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def tag(name: str, /, *inside: object, **attributes: object) -> Html:
    """An underscore behind an attribute's name is left out, one in it is a hyphen; None and False: without it; True: by its name alone."""
    given = "".join(_attribute(key, value) for key, value in attributes.items() if value is not None and value is not False)
    return Html(f"<{name}{given}>{''.join(map(text, inside))}</{name}>")


def void(name: str, /, **attributes: object) -> Html:
    """One that has no end."""
    return Html(tag(name, **attributes).rpartition("</")[0])


def scrolling(name: str, /, label: str, *inside: object, class_: str | None = None) -> Html:
    """What may be wider or higher than there is room for: keys reach and scroll it."""
    return tag(name, *inside, class_=class_, tabindex="0", role="group", aria_label=label)


def _attribute(key: str, value: object) -> str:
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{text(value)}"'


def joined(parts: Iterable[object], between: str = "") -> Html:
    return Html(text(between).join(map(text, parts)))


def cut(value: str, most: int) -> str:
    return value if len(value) <= most else f"{value[:most]}… ({len(value) - most} more characters)"
