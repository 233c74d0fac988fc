"""How a launcher's own parser reads words. Arguments: a module whose main() parses them, and lists of words as JSON. Output, as JSON:
options, by name, whether they take a value; meant, by each beginning of a name, the option that it stands for; programs, what each list is
followed by, null where the parser refuses it."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from typing import Any, NoReturn

PARSE = argparse.ArgumentParser.parse_args


class Found(BaseException):
    pass


def parse_args(self: argparse.ArgumentParser, *_args: object, **_more: object) -> NoReturn:
    raise Found(self)


def parser_of(module: str) -> Any:
    main = importlib.import_module(module).main
    argparse.ArgumentParser.parse_args = parse_args  # type: ignore[assignment,method-assign]
    try:
        main()
    except Found as found:
        return found.args[0]
    finally:
        argparse.ArgumentParser.parse_args = PARSE  # type: ignore[method-assign]
    sys.exit(f"{module} parses nothing")


def meant(parser: Any, beginning: str) -> str | None:
    if beginning in parser._option_string_actions or not parser.allow_abbrev:
        return None
    found = parser._get_option_tuples(beginning)
    return str(found[0][1]) if len(found) == 1 else None


def program(parser: Any, words: list[str]) -> str | None:
    name = next(action.dest for action in parser._actions if not action.option_strings)
    try:
        return str(getattr(PARSE(parser, [*words, "PROGRAM"]), name))
    except SystemExit:
        return None


out = os.dup(1)
os.dup2(2, 1)
module, lists = sys.argv[1], json.loads(sys.argv[2])
del sys.argv[1:]
parser = parser_of(module)
options = {name: action.nargs != 0 for action in parser._actions for name in action.option_strings}
beginnings = {name[:end] for name in options if name.startswith("--") for end in range(3, len(name))}
told = {"options": options, "meant": {each: meant(parser, each) for each in beginnings}, "programs": [program(parser, w) for w in lists]}
with os.fdopen(out, "w") as file:
    json.dump(told, file)
