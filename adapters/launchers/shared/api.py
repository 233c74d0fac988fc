"""What the modules of launchers need of the rooms around them, in one place: the job and the reader of settings, the values of a plan,
paths, and words for messages."""

from __future__ import annotations

from ranklaunch import showing
from ranklaunch.errors import ConfigError, WaitError, counted, nearest, number
from ranklaunch.files import Files, absolute, folder_of, join, own_program, text_of, which
from ranklaunch.plan.model import PROGRAM, File, Limits, Plan, Process, RankLog, RankOutputs, Recorder, Recorders, Wait
from ranklaunch.read import parse
from ranklaunch.read.job import SHELLS, WRAPPERS, Job, Node, Program, make_nodes
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.render.templates import Templates
from ranklaunch.values import Value, replace
from ranklaunch.verdict import folders
from ranklaunch.verdict.model import Failure

__all__ = [
    "PROGRAM", "SHELLS", "WRAPPERS", "ConfigError", "Failure", "File", "Files", "Job", "Limits", "Node", "Plan", "Process",
    "Program", "RankLog", "RankOutputs", "Reader", "Recorder", "Recorders", "Templates", "Value", "Variable", "Wait", "WaitError",
    "absolute", "counted", "folder_of", "folders", "join", "make_nodes", "nearest", "number", "own_program", "parse", "replace",
    "showing", "text_of", "which",
]  # fmt: skip
