"""python -m ranklaunch."""

from ranklaunch_start import script

script()
