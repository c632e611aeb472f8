"""The parser of the command line, and options that several commands have."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import NoReturn

from dpverify.cli.output import BAD_INPUT, print_error
from dpverify.settings import Settings
from dpverify.util.checks import nearest_name, shorten
from dpverify.util.formatting import one_line


class Parser(argparse.ArgumentParser):
    """An argument parser that reports wrong usage in one line."""

    def error(self, message: str) -> NoReturn:
        """Print the message and exit with status 2."""
        self.exit(print_error(f"{message}; see {self.prog} --help", BAD_INPUT))

    def parse_args(self, args: Sequence[str], namespace: None = None) -> argparse.Namespace:  # type: ignore[override]
        """Return the arguments; the parser of the command reports what it does not know."""
        arguments, unknown = self.parse_known_args(args, namespace)
        if unknown:
            command: Parser = getattr(arguments, "parser", self)
            command.error(command.describe_unknown(unknown, args))
        return arguments

    def describe_unknown(self, unknown: Sequence[str], args: Sequence[str]) -> str:
        """Return the message for the first argument of `args` that is unknown; the name of a setting is recognised."""
        option, equals, value = unknown[0].partition("=")
        if not option.startswith("-"):
            return f"found the argument {shorten(unknown[0])}; expected no more arguments"
        message = f"found the option {one_line(option)}; expected an option of {self.prog}"
        setting = option.lstrip("-").replace("-", "_")
        if "--set" in self._option_string_actions and setting in Settings.__dataclass_fields__:
            if not equals:
                value = args[args.index(unknown[0]) + 1 :][:1]
                value = value[0] if value and not value[0].startswith("--") else "VALUE"
            return f"{message}; use --set {setting}={one_line(value)}"
        near = nearest_name(option, self._option_string_actions)
        return message if near is None else f"{message}; the nearest is {near}"


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
