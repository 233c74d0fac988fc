"""Sphinx: how the pages become a site (`make docs`). The source folder is the whole repository, so that every relative link of a page
means the same file here and where the repository is read."""

from __future__ import annotations

import re
from pathlib import Path

_VERSION = Path(__file__).resolve().parent.parent / "src" / "ranklaunch" / "version.py"
release = re.findall('"(.*)"', _VERSION.read_text(encoding="utf-8"))[-1]

project = "ranklaunch"
author = "the ranklaunch authors"
extensions = ["myst_parser"]
include_patterns = ["docs/**.md", "*.md", "containers/README.md", "charts/**/README.md", "catalogue/README.md", "tests/corpus/README.md"]
exclude_patterns = [".venv*", "build", "runs", "README.md", "**/__pycache__"]
root_doc = "docs/index"

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 6
# Links to places that are no pages, such as folders and ids in HTML, are judged in the finished site: tools/check_site.py.
suppress_warnings = ["myst.xref_missing", "myst.header"]

html_theme = "furo"
html_title = f"ranklaunch {release}"
html_static_path = ["site/static"]
html_css_files = ["site.css"]
html_js_files = ["filter.js", "digits.js"]
html_favicon = "site/static/icon.svg"
html_extra_path = ["site/index.html"]
html_copy_source = False
html_show_sphinx = False
pygments_style = "friendly"
