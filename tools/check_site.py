"""Check every link of the built site: the file exists, and so does the element with the anchor's id.

python tools/check_site.py build/site
"""

from __future__ import annotations

import posixpath
import sys
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LINKS = {"a": "href", "link": "href", "img": "src", "script": "src", "source": "src"}


class Page(HTMLParser):
    """A page's ids of elements, and its links in their order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.ids.update(value for name in ("id", "name") if (value := values.get(name)))
        link = values.get(_LINKS.get(tag, ""))
        if link:
            self.links.append(link)


def broken(folder: Path) -> Iterator[str]:
    """Yield "PAGE: LINK: REASON" for each broken link. Links to other sites are left alone."""
    pages = {path.relative_to(folder).as_posix(): Page(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.html"))}
    for name, page in pages.items():
        for link in dict.fromkeys(page.links):
            reason = _reason(link, name, pages, folder)
            if reason:
                yield f"{name}: {link}: {reason}"


def _reason(link: str, name: str, pages: dict[str, Page], folder: Path) -> str:
    """Return the reason why a link is broken; "" for a good one."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return ""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(name), unquote(parts.path))) if parts.path else name
    if not (folder / path).is_file():
        return "no such file"
    anchor = unquote(parts.fragment)
    return f"no element has the id {anchor}" if anchor and path in pages and anchor not in pages[path].ids else ""


def main(argv: Sequence[str]) -> int:
    (folder,) = argv
    lines = list(broken(Path(folder)))
    for line in lines:
        print(line)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
