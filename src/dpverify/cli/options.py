"""The parser of the command line, and options that several commands have."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NoReturn

from dpverify.cli.output import BAD_INPUT, print_error


class Parser(argparse.ArgumentParser):
    """An argument parser that reports wrong usage in one line."""

    def error(self, message: str) -> NoReturn:
        """Print the message and exit with status 2."""
        self.exit(print_error(f"{message}; see {self.prog} --help", BAD_INPUT))


AddCommand = Callable[[str, str, str], Parser]  # name, summary and example of a command


def add_workers(command: argparse._ActionsContainer) -> None:
    """Add the argument --workers."""
    command.add_argument("--workers", type=int, metavar="N", help="Draw runs in N processes (default: in this one).")


def add_trust(command: Parser) -> None:
    """Add the argument --trust-results."""
    command.add_argument(
        "--trust-results",
        action="store_true",
        help="Use the results in the folder although source files have changed, unless the runs have changed too.",
    )


def add_pair(command: Parser, required: bool = True) -> None:
    """Add the arguments --first and --second."""
    text = "Read the first data set from this file (.npy, .csv, .txt, .json)."
    command.add_argument("--first", required=required, metavar="F", help=text)
    command.add_argument("--second", required=required, metavar="F", help="Read the neighbouring data set from here.")


def add_box(command: Parser) -> None:
    """Add the argument --box."""
    text = "The intervals of a box that is searched."
    command.add_argument("--box", type=parse_interval, nargs="+", metavar="LOW,HIGH", help=text)


def parse_interval(text: str) -> tuple[float, float]:
    """Return the interval in a text such as 0,3."""
    low, high = text.split(",")
    return float(low), float(high)


def add_settings(command: Parser) -> None:
    """Add the argument --set."""
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="Change one setting, for example test_runs=1000000. It can be repeated.",
    )


def add_quiet(command: Parser) -> None:
    """Add the argument --quiet."""
    command.add_argument("--quiet", action="store_true", help="Show no progress.")
