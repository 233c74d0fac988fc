"""How far a program's own account of its success is believed. Few say anything of it, so a start imports this where one does."""

from __future__ import annotations

from ranklaunch.env import parse
from ranklaunch.env.reader import Variable

WHOLE, PROGRAM = "whole", "program"
WAIT, KILL = "wait", "kill"
STOP, ALLOW = "stop", "allow"

EXIT = Variable(
    "exit", ("RANKLAUNCH_EXIT",), parse.OneOf(WHOLE, PROGRAM), WHOLE, "what decides on success: whole (the exit status of the program, of "
    "launchers whose failure its shell hid, and of ranks that it left at work) or program (its exit status alone)",
)  # fmt: skip
LEFT_RANKS = Variable(
    "left_ranks", ("RANKLAUNCH_LEFT_RANKS",), parse.OneOf(WAIT, KILL), WAIT, "wait for ranks that a program leaves at work when it ends "
    "with 0, or kill them",
)  # fmt: skip
ALONE_S = Variable(
    "alone_s", ("RANKLAUNCH_ALONE_S",), parse.seconds, 60.0, "seconds after which a launcher whose ranks work alone on one of several "
    "nodes ends the job",
)  # fmt: skip
EACH_NODE_ALONE = Variable(
    "each_node_alone", ("RANKLAUNCH_EACH_NODE_ALONE",), parse.flag, False, "let the ranks of each of several nodes work alone",
)  # fmt: skip
NESTED = Variable(
    "nested", ("RANKLAUNCH_NESTED",), parse.OneOf(STOP, ALLOW), STOP, "what becomes of a job whose ranks start ranks of their own on the "
    "same devices, slots or port",
)  # fmt: skip

VARIABLES: tuple[Variable[object], ...] = (EXIT, LEFT_RANKS, ALONE_S, EACH_NODE_ALONE, NESTED)
