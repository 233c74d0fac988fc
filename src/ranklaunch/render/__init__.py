"""Templates, and the quoting of what they render."""

from __future__ import annotations

OURS = "shipped/"  # before a name that is looked for in the last folder alone, whatever the others have of it
