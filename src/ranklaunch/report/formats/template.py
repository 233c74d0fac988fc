"""Templates of reports: rendering by Jinja, and the filters of all templates."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pkgutil import get_data
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from ranklaunch.errors import counted, numbered
from ranklaunch.report import model
from ranklaunch.report.formats import words

ROOM = "ranklaunch.report.formats"
FILTERS = (
    words.clock,
    words.long,
    words.lasted,
    words.exact,
    words.memory,
    words.process_name,
    words.failure,
    words.sentence,
    counted,
    numbered,
)
# Characters that control a terminal, change the direction of a text or are not valid.
_CONTROL, _DIRECTION = r"\x00-\x08\x0e-\x1f\x7f-\x9f", r"\u200e\u200f\u2028-\u202e\u2066-\u2069"
_ODD = re.compile(rf"[{_CONTROL}{_DIRECTION}\ufeff\ufff9-\ufffb\ufffe\uffff\ud800-\udfff]")


def rendered(name: str, filters: Mapping[str, Any], **values: object) -> str:
    """Return a template filled with values. In HTML, values are escaped unless the template marks them safe."""
    is_page = ".html" in name
    environment = Environment(
        loader=PackageLoader("ranklaunch.report", "formats"),
        autoescape=is_page,
        undefined=StrictUndefined,
        finalize=_harmless if is_page else None,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update({each.__name__: each for each in FILTERS}, **filters)
    return environment.get_template(name).render(values, words=words, model=model)


def file(name: str) -> str:
    return (get_data(ROOM, name) or b"").decode()


def _harmless(value: object) -> object:
    return _ODD.sub(_escape, value) if isinstance(value, str) and _ODD.search(value) else value


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
