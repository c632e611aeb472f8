"""The command line of `dpverify`: its commands, their options and their help texts."""

from __future__ import annotations

import argparse
import functools

from dpverify import __version__
from dpverify.cli import calibrate, check, compare, ledger, plan, search, tradeoff, watch
from dpverify.cli.options import Parser, add_pair, add_settings, add_trust, add_workers


@functools.cache
def parser() -> Parser:
    """Return the parser of the command line."""
    top = Parser(
        prog="dpverify",
        description="Measures, from samples alone, how private a randomised mechanism is.",
        epilog="Exit status: 0 not refuted, or no claim; 1 refuted; 2 bad input, or the mechanism failed; 3 no "
        "answer, or too few runs.",
    )
    top.add_argument("--version", action="version", version=f"dpverify {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add_command(name: str, summary: str, example: str) -> Parser:
        command = commands.add_parser(
            name,
            help=summary,
            description=summary,
            epilog=f"example:\n  {example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.set_defaults(parser=command)
        return command

    _add_verify_arguments(
        add_command(
            "verify",
            "Verify one mechanism on one pair of data sets.",
            "dpverify verify mine.py:mechanism --first a.csv --second b.csv --epsilon 1 --delta 1e-6",
        )
    )
    _add_over_time_arguments(
        add_command(
            "over-time",
            "Measure how much every prefix of an output reveals: when a record leaks, and how much.",
            "dpverify over-time mine.py:filter --data readings.csv --hide reading --change 1 --delta 1e-3",
        )
    )
    study = add_command(
        "study",
        "Verify every combination of a study file.",
        "dpverify study noise.toml --workers 4 --html noise.html",
    )
    study.add_argument("file", metavar="FILE.toml", help="The study file.")
    study.add_argument(
        "--folder", metavar="DIR", help="Write reports and table.csv to this folder (default: beside the study file)."
    )
    add_trust(study)
    add_workers(study)
    study.add_argument(
        "--timeout", type=float, metavar="S", help="Record a combination as failed after S seconds (default: no limit)."
    )
    study.add_argument(
        "--html",
        metavar="FILE",
        help="Write a page with the finding, all answers and figures to this file, and a page for each report.",
    )
    study.add_argument("--quiet", action="store_true", help="Print only what failed.")
    report = add_command(
        "report",
        "Print a report that was written as JSON, or write its page.",
        "dpverify report report.json --html report.html",
    )
    report.add_argument("file", metavar="FILE.json", help="The report.")
    report.add_argument("--html", metavar="FILE", help="Write the page of the report to this file instead.")
    folder = add_command(
        "verify-folder",
        "Check that everything in the folder of a verification or a study is undamaged and belongs together.",
        "dpverify verify-folder noise",
    )
    folder.add_argument("directory", metavar="DIR", help="The folder.")
    folder.add_argument("--quiet", action="store_true", help="Print only what is wrong.")
    for module in (check, ledger, watch, plan, calibrate, search, tradeoff, compare):
        module.add_to(add_command)
    add_command("demo", "Show a false claim that is refuted and a true one that is not.", "dpverify demo")
    return top


def _add_over_time_arguments(command: Parser) -> None:
    """Add the arguments of `dpverify over-time`."""
    add = command.add_argument
    _add_mechanism(command)
    add("--first", metavar="F", help="Read the first data set from this file (.npy, .csv, .txt, .json).")
    add("--second", metavar="F", help="Read the neighbouring data set from this file.")
    records = command.add_argument_group("many records, instead of --first and --second")
    records.add_argument(
        "--data",
        metavar="F",
        help="Read a stream from this file: one row per step; a single row has one number per step.",
    )
    records.add_argument(
        "--hide",
        metavar="WHAT",
        default="reading",
        help="What must stay hidden: reading, sensor, stream, or window:W for W consecutive rows (default reading).",
    )
    records.add_argument(
        "--change",
        type=_changes,
        metavar="X,...",
        help="Add X to the readings that must stay hidden: one number, or one per sensor, for example 3,1. "
        "If the first of several is negative, write --change=-3,1.",
    )
    records.add_argument("--steps", type=_numbers, metavar="K,...", help="Hide readings, or windows from, these steps.")
    records.add_argument("--sensors", type=_numbers, metavar="J,...", help="Hide these sensors (default: all).")
    records.add_argument(
        "--jointly", action="store_true", help="Let the bounds of all records hold together, not record by record."
    )
    add("--epsilon", type=float, metavar="E", help="Test the claim that epsilon is E. Without it, epsilon is measured.")
    add("--delta", type=float, default=0.0, metavar="D", help="Bound epsilon at this delta (default 0).")
    add("--claim", metavar="CLAIM", help="Test another claim instead of --epsilon, as for the command verify.")
    add("--until", type=float, metavar="E", help="Print for how many steps the output stays within the budget E.")
    add_settings(command)
    add(
        "--stop-early",
        action="store_true",
        help="Stop as soon as the claim is refuted for the whole output.",
    )
    add("--json", metavar="FILE", help="Write the result as JSON to this file; - writes it to standard output.")
    add("--html", metavar="FILE", help="Write the result as a page to this file.")
    _add_execution(command)


def _add_mechanism(command: Parser) -> None:
    """Add the argument MECHANISM."""
    command.add_argument(
        "mechanism",
        metavar="MECHANISM",
        nargs="?",
        help="The mechanism, module:name or path/file.py:name. Add () to call a function that makes it. "
        "A program is named at the end of the command instead: -- PROGRAM ARG...",
    )


def _add_verify_arguments(command: Parser) -> None:
    """Add the arguments of `dpverify verify`."""
    add = command.add_argument
    _add_mechanism(command)
    add_pair(command)
    add("--epsilon", type=float, metavar="E", help="Test the claim that epsilon is E. Without it, epsilon is measured.")
    add("--delta", type=float, default=0.0, metavar="D", help="Use this delta in the claim (default 0).")
    add(
        "--claim",
        metavar="CLAIM",
        help="Test another claim instead of --epsilon: gaussian(mu=1), zcdp(rho=0.5), renyi(order=8, epsilon=1), "
        "pure(1), approximate(1, 1e-5), points([(1, 1e-3), (2, 1e-6)]), each also with .group(K) behind it; or "
        "path/file.py:name of a claim (profile and tradeoff take a function) or of an accountant's privacy profile.",
    )
    add(
        "--detects",
        type=float,
        metavar="X",
        help="Exit with status 3 if the runs are too few to notice a violation by this factor, such as 1.25.",
    )
    add_settings(command)
    add(
        "--stop-early",
        action="store_true",
        help="Stop as soon as the claim is refuted, or certified over all events. With --folder, the same command with "
        "more test runs continues.",
    )
    add("--paper", action="store_true", help="Start from the settings of the source paper.")
    add("--json", metavar="FILE", help="Write the report as JSON to this file; - writes it to standard output.")
    add("--html", metavar="FILE", help="Write the report as a page to this file.")
    _add_execution(command)


def _add_execution(command: Parser) -> None:
    """Add the arguments that state where and how runs are drawn."""
    add = command.add_argument
    add("--folder", metavar="DIR", help="Store checkpoints in this folder; the same command resumes a stopped run.")
    add_trust(command)
    executors = command.add_mutually_exclusive_group()
    add_workers(executors)
    executors.add_argument("--dask", metavar="ADDRESS", help="Draw runs on the Dask cluster of this scheduler.")
    add("--quiet", action="store_true", help="Print nothing; the exit status is the result.")
    programs = command.add_argument_group("arguments for -- PROGRAM ARG...")
    programs.add_argument(
        "--shape",
        type=_shape,
        metavar="K,D",
        help="Set the shape of one output, steps and coordinates (default: one step, as many numbers as in a line).",
    )
    programs.add_argument(
        "--timeout",
        type=float,
        default=60.0,
        metavar="S",
        help="Stop if a block takes over S seconds (default 60).",
    )
    programs.add_argument(
        "--unseeded", action="store_true", help="State that the program ignores the seed, so runs cannot be repeated."
    )


def _numbers(text: str) -> tuple[int, ...]:
    """Return the whole numbers in a text such as 0,3,5."""
    return tuple(int(part) for part in text.split(","))


def _changes(text: str) -> float | tuple[float, ...]:
    """Return the number in a text such as 3, or the numbers in a text such as 3,1."""
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"found {text!r}; expected a number, or one number per sensor, for example 3,1"
        ) from None
    return numbers[0] if len(numbers) == 1 else numbers


def _shape(text: str) -> tuple[int, ...]:
    """Return the shape in a text such as 4,1 or 4x1."""
    return tuple(int(part) for part in text.replace("x", ",").split(","))
