"""Prints what its options ask for, in this order, and nothing else; so a test can tell every byte that must arrive.

--lines N --size B  N lines "line I xxx..." of B bytes, the line end not counted
--cr                a progress bar: "\\r" before each of 11 states, a line end after the last
--split-utf8        "é" in two writes, some time apart, then a line end
--long BYTES        one line of BYTES times "y"
--no-newline        "no newline", without a line end
--close-stdout      closes standard output and standard error
--then S            sleeps S seconds at the end
"""

from __future__ import annotations

import argparse
import os
import sys
import time


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--lines", type=int, default=0, metavar="N")
    parser.add_argument("--size", type=int, default=0, metavar="B")
    parser.add_argument("--cr", action="store_true")
    parser.add_argument("--split-utf8", action="store_true")
    parser.add_argument("--long", type=int, default=0, metavar="BYTES")
    parser.add_argument("--no-newline", action="store_true")
    parser.add_argument("--close-stdout", action="store_true")
    parser.add_argument("--then", type=float, default=0, metavar="S")
    options, _ = parser.parse_known_args()
    print_text(options)
    sys.stdout.flush()
    if options.close_stdout:
        os.close(1)
        os.close(2)
    time.sleep(options.then)
    os._exit(0)  # not sys.exit: it would flush what is closed, and exit with 120


def print_text(options: argparse.Namespace) -> None:
    out = sys.stdout.buffer
    out.writelines(f"line {index} ".ljust(options.size, "x").encode() + b"\n" for index in range(options.lines))
    if options.cr:
        print_progress()
    if options.split_utf8:
        print_in_two_writes("é\n".encode(), first=1)
    if options.long:
        out.write(b"y" * options.long + b"\n")
    if options.no_newline:
        out.write(b"no newline")


def print_progress() -> None:
    for percent in range(0, 101, 10):
        sys.stdout.buffer.write(f"\r{percent:3d}% |{'#' * (percent // 10):10}|".encode())
        sys.stdout.buffer.flush()
    sys.stdout.buffer.write(b"\n")


def print_in_two_writes(text: bytes, first: int) -> None:
    sys.stdout.buffer.write(text[:first])
    sys.stdout.buffer.flush()
    time.sleep(0.1)  # long enough for a reader to see the first half alone
    sys.stdout.buffer.write(text[first:])


if __name__ == "__main__":
    main()
