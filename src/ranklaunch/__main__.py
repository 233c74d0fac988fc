"""python -m ranklaunch."""

from ranklaunch.entrypoints.main import script

script()
