"""Templates, and quoting of their values."""

from __future__ import annotations

OURS = "shipped/"  # prefix of a template's name: search the last folder only, ranklaunch's own
