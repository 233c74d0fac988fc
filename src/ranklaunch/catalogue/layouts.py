"""How libraries lay out what an exception says, where that is not one line below the frames.

rich has panels of frames, of the program's lines and of its values, and wraps the exception below; Typer has one around an error of usage.
TensorFlow puts the place in the graph between `Graph execution error:` and what went wrong, or frames below `in user code:`, and Keras an
empty line behind `Exception encountered when calling ...`. pydantic names the fields below. Open MPI breaks the line that names the rank.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterable, Iterator, MutableSequence, Sequence

MARKS = ("╯", "Graph execution error:", "Exception encountered when calling ", "mpirun has exited due to ")
_SIDE, _ENDS = "│", "╰"
_ERROR = re.compile(r"╭─ Error ─+╮$")
_FRAME = 4  # columns, of the sides of a panel and the blanks beside them
_TITLE = " Traceback"  # (most recent call last), as far as the panel is wide
_MARGIN = re.compile(r"^ {1,80}(?=[╭│╰])|(?<=╯\n) {1,80}", re.MULTILINE)  # of rich's handler of logging, which puts it below the message
_MOST_LINES = 40  # of a message
_OF_GRAPH = re.compile(r"[\w.]{1,120}: Graph execution error:$")
_AT_NODE = re.compile(r"\s*\[\[(?:\{\{node |\w)")
_ALSO = re.compile(r"\s*\(\d{1,3}\) |\d{1,9} (?:successful operations|derived errors ignored)\.")  # of several errors at the root
_OF_PLACE = re.compile(r"Detected at node |Node: '|<stack traces unavailable>|\d{1,9} root error\(s\) found\.")
_OF_TRANSPORT = re.compile(r"Additional GRPC error information|:UNKNOWN:|:\{\"created\"")  # which tells the same once more
_ORIGINAL = "Original stack trace for "
_MOST_OF_GRAPH = 400  # lines
_BY_MPIRUN = re.compile(r"mpirun has exited due to process rank \d{1,9} with PID \d{1,9} on$")
_OF_FIELDS = r"\d validation errors? for \S[^\n]{0,100}$"
_OF_VALUE = r" (?:\[type=\w+, input_value=|\(type=[\w.]+[;)])"
_MOST_OF_FIELD = 8  # lines
_OF_FIELD = "    For further information visit https://errors.pydantic.dev/"
_IN_USER_CODE = ": in user code:"
_OF_FILE = r' {4,40}File "'
_OF_USER_CODE = r" {4,40}[A-Za-z_][\w.]{0,400}: \S"
OPENING, _CLOSING = ("(", "[", "{"), (")", "]", "}")
_MOST_OF_VALUE = 12  # lines
_WARNING = re.compile(r":\d{1,6}: \w{1,60}Warning: ")
_BY_TRITON = re.compile(r"\.CompilationError: at \d{1,6}:\d{1,6}:$")
_BY_GRPC = " of RPC that terminated with:"
_BY_KERAS = re.compile(r"[\w.]{1,120}: Exception encountered when calling .{1,80}\.$")
_VALUE = re.compile(r"\s+[A-Z][a-z]\w{0,15}: +\S.{0,200}")


def without_columns(text: str) -> str:
    """Without those of rich's handler of logging before each line, and the blanks with which it fills lines up."""
    return _MARGIN.sub("", "\n".join(map(str.rstrip, text.split("\n")))) if MARKS[0] in text else text


def within(lines: Sequence[str]) -> Iterator[int]:
    """The numbers of lines in panels, but for the last of each, which stands above the exception."""
    inside = False
    for number, line in enumerate(lines):
        inside = (inside and not line.startswith(_ENDS)) or begins_panel(line)
        if inside:
            yield number


def begins_panel(line: str) -> bool:
    """Whether a traceback does, as rich draws it."""
    return line.startswith("╭") and _TITLE in line


def join(bare: MutableSequence[str], told: MutableSequence[str]) -> dict[int, int]:
    """Puts what went wrong into the line that names the exception; what stood in between is left out. From the numbers of those lines to
    those of the ones behind, where the message may go on, and 0 where it does not. bare: as told, without what launchers and loggers put
    before a line."""
    _take_out_of_frames(bare, told)
    panels = {number: _wrapped(bare, told, number, number - 1) for number in _below_panels(bare)}
    others = {number: below for number, line in enumerate(bare) if (below := _below(bare, number, line))}
    for number, below in {**panels, **others}.items():
        rest = f" {_said(bare, number, below)}" if number in others else _rest(bare, number, below, _cells(bare[number - 1]))
        for each in (bare, told):
            each[number] = f"{each[number].rstrip()}{rest}".rstrip()
        for each_below in below:
            bare[each_below] = told[each_below] = ""
    return {**{number: below.stop for number, below in panels.items()}, **dict.fromkeys(others, 0)}


def _take_out_of_frames(bare: MutableSequence[str], told: MutableSequence[str]) -> None:
    """Puts what Typer and rich-click have in a panel with the title `Error` into one line, as click writes it."""
    for title in [number for number, line in enumerate(bare) if _ERROR.match(line)]:
        first = stop = title + 1
        while stop < min(len(bare), first + _MOST_LINES) and bare[stop].startswith(_SIDE):
            stop += 1
        if first == stop or not bare[stop : stop + 1] or not bare[stop].startswith(_ENDS):
            continue
        inside = [line.strip(_SIDE).strip() for line in bare[first:stop]]
        whole = f"Error: {inside[0]}{_rest(inside, 0, range(1, len(inside)), _cells(bare[title]) - _FRAME)}".rstrip()
        mark = told[first].partition(_SIDE)[0]
        bare[title : stop + 1] = told[title : stop + 1] = [""] * (stop + 1 - title)
        bare[first], told[first] = whole, f"{mark}{whole}"


def unwrapped(bare: Sequence[str], told: Sequence[str], number: int, above: int) -> str:
    """A line of a message, as it was before rich wrapped it, if it did. above: the number of the line above the message."""
    line = bare[number].strip()
    if not bare[above].startswith(_ENDS):
        return line
    width = _cells(bare[above])
    return line + _rest(bare, number, _wrapped(bare, told, number, above), width)


def _below(bare: Sequence[str], number: int, line: str) -> range:
    """Lines that belong to this one, by its form; nothing where it is of none."""
    if _OF_GRAPH.match(line):
        return _in_graph(bare, number)
    if _BY_MPIRUN.match(line):
        return range(number + 1, min(number + 2, len(bare)))
    if _BY_KERAS.match(line) and not "".join(bare[number + 1 : number + 2]).strip():
        filled = _filled(bare, number + 1)
        return range(number + 1, filled + 1 if filled < len(bare) else number + 1)
    return range(0)


def _said(bare: Sequence[str], number: int, below: range) -> str:
    """All that goes on below; of a graph's error, the last before the nodes."""
    if _OF_GRAPH.match(bare[number]):
        below = _of_status(bare, number, below)
    return " ".join(bare[each].strip() for each in below if bare[each].strip() and not _OF_TRANSPORT.match(bare[each]))


def _of_status(bare: Sequence[str], number: int, below: range) -> range:
    """What went wrong in a graph: the last lines before the nodes with nothing between them, and without what tells of a node's place."""
    at_node = next((each for each in below if _AT_NODE.match(bare[each])), below.stop)
    last = next((each for each in range(at_node - 1, number, -1) if bare[each].strip()), at_node)
    first = last
    while first - 1 > number and _is_of_status(bare[first]) and _is_of_status(bare[first - 1]):
        first -= 1
    return range(first, min(last + 1, at_node))


def _is_of_status(line: str) -> bool:
    return bool(line.strip()) and not line[0].isspace() and not _OF_PLACE.match(line)


def _below_panels(lines: Sequence[str]) -> list[int]:
    """The numbers of lines right below one, which name an exception."""
    inside = {*within(lines)}
    ends = (number for number, line in enumerate(lines) if line.startswith(_ENDS) and number - 1 in inside and number not in inside)
    return [number + 1 for number in ends if number + 1 < len(lines)]


def _wrapped(bare: Sequence[str], told: Sequence[str], number: int, above: int) -> range:
    """The lines that go on from the first one of a message: no line is wider than the panel, and one goes on where the next word did not
    fit in, behind the blank before that, or within a word that is longer than a line. rich's handler of logging keeps a message behind its
    columns, all of it. above: the number of the panel's last line."""
    stop, width, margin = min(len(bare), number + _MOST_LINES), _cells(bare[above]), _indented(told[above])
    stop = next((each for each in range(number + 1, stop) if _indented(told[each]) < margin), stop)
    ends = (each for each in range(number + 1, stop) if not _goes_on(bare[each], bare[each - 1], told[each - 1], width))
    return range(number + 1, next(ends, stop))


def _indented(line: str) -> int:
    return len(line) - len(line.lstrip())


def _goes_on(line: str, above: str, told: str, width: int) -> bool:
    if not line.strip() or _fits(line.split()[0], above, width):
        return False
    return told.endswith(" ") or not _fits(line.strip()[:1], above, width + 1)


def _rest(lines: Sequence[str], number: int, below: range, width: int) -> str:
    """What goes on below. A word that is longer than a line has those to itself over which it is broken."""
    rest, above = "", lines[number].strip()
    for line in (lines[each].strip() for each in below):
        within = " " not in above and not _fits(line[:1], above, width + 1)
        rest, above = f"{rest}{'' if within else ' '}{line}", line
    return rest


def _fits(word: str, line: str, width: int) -> bool:
    return _cells(line.rstrip()) + 1 + _cells(word) <= width


def _cells(text: str) -> int:
    """The columns that a terminal takes for it: characters of Chinese, Japanese and Korean are two wide."""
    return len(text) if text.isascii() else sum(2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in text)


def _in_graph(lines: Sequence[str], number: int) -> range:
    """Up to the last of the nodes, or of the frames that TensorFlow 1 has behind them; nothing where there are none."""
    stop = min(len(lines), number + _MOST_OF_GRAPH)
    end = next((each for each in range(number + 1, stop) if _AT_NODE.match(lines[each])), number)
    while number < end < stop - 1 and (_AT_NODE.match(lines[end + 1]) or _ALSO.match(lines[end + 1])):
        end += 1
    original = _filled(lines, end + 1)
    if end > number and original < stop and lines[original].startswith(_ORIGINAL):
        end = next((each for each in range(original + 1, stop) if lines[each][:1].strip()), stop) - 1
    return range(number + 1, end + 1)


def _filled(lines: Sequence[str], number: int) -> int:
    """The next that is not empty."""
    return next((each for each in range(number, min(len(lines), number + _MOST_LINES)) if lines[each].strip()), len(lines))


def has_fields(line: str) -> bool:
    """Whether it is the first line of pydantic's message, below which the fields stand."""
    return bool(re.search(_OF_FIELDS, line))


def of_fields(lines: Sequence[str]) -> Iterator[int]:
    """The numbers of lines with pydantic's fields, which may look like steps of a training: their names, and what shows their values or
    leads to its pages."""
    for number, line in enumerate(lines):
        if " [type=" in line and ", input_value=" in line:
            yield number
            if number and not lines[number - 1][:1].isspace() and not has_fields(lines[number - 1]):
                yield number - 1
        elif line.startswith(_OF_FIELD):
            yield number


def below_warnings(lines: Sequence[str]) -> Iterator[int]:
    """The numbers of the program's lines that Python quotes below what it warns of."""
    for number, line in enumerate(lines[1:], 1):
        if line[:1].isspace() and _WARNING.search(lines[number - 1]):
            yield number


def with_values(line: str, below: Iterable[str]) -> str:
    """As Open MPI's boxes have them: "unable to create the desired directory:", an empty line, "  Directory: /x" and "  Error: why"."""
    if not line.endswith(":"):
        return line
    values = itertools.takewhile(_VALUE.fullmatch, (each for each in below if each.strip()))
    return f"{line} {', '.join(' '.join(value.split()) for value in values)}".strip()


def told_below(line: str, below: Sequence[str]) -> str:
    """The line with what says why, of a message whose first line does not: what is wrong with pydantic's first field, without the value,
    which may be a secret, the exception below the frames of the user's code that TensorFlow's AutoGraph shows, what stands behind a value
    of several lines, what stands below the source of a kernel that Triton shows, and status and details of gRPC. "" for others."""
    if has_fields(line):
        first, *others = (*below, "")
        field, wrong = ("", below) if first[:1].isspace() else (first.strip(), others)  # of the whole there is no field
        what = _wrong(wrong)
        return f"{line}: {what}{f' ({field})' if field else ''}" if what else line
    if line.endswith(_IN_USER_CODE):
        pairs = zip(("", *below), below)
        named = (number for number, (above, each) in enumerate(pairs) if _is_named(each) and not re.match(_OF_FILE, above))
        told = [each.strip() for each in below[next(named, len(below)) :] if each.strip()]
        return " ".join((line, *told[: 2 if _BY_KERAS.match(told[0]) else 1])) if told else ""
    if line.endswith(OPENING):  # a value of several lines
        closed = next((each for each in below[:_MOST_OF_VALUE] if each.startswith(_CLOSING)), "")
        return f"{line}...{closed.strip()}" if closed else ""
    if line.endswith(_BY_GRPC):
        return " ".join((line, ", ".join(each.strip() for each in below[:2])))
    if _BY_TRITON.search(line):
        behind = next((below[number + 1 :] for number, each in enumerate(below) if each.strip() == "^"), ())
        return " ".join((line, *(each.strip() for each in behind[:1])))
    return ""


def _is_named(line: str) -> bool:
    return bool(re.match(_OF_USER_CODE, line)) and not line.endswith(_IN_USER_CODE)


def _wrong(lines: Sequence[str]) -> str:
    """What pydantic says of a field, which may be several lines before the value."""
    shown = next((number for number, line in enumerate(lines[:_MOST_OF_FIELD]) if re.search(_OF_VALUE, line)), 0)
    told = " ".join(" ".join(lines[: shown + 1]).split())
    return re.split(_OF_VALUE, told)[0].rstrip(" ,")
