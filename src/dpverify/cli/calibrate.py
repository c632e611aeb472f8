"""`dpverify calibrate`: the noise that a required privacy needs."""

from __future__ import annotations

import argparse

from dpverify import calibrate
from dpverify.cli.inputs import absolute, read_settings
from dpverify.cli.options import AddCommand, add_box, add_pair, add_quiet, add_settings, add_workers
from dpverify.cli.output import print_output, stdout_to_stderr
from dpverify.studies.calibrate import SEARCH_RUNS
from dpverify.studies.files.loading import load_data, load_object


def add_to(add_command: AddCommand) -> None:
    """Add the command."""
    command = add_command(
        "calibrate",
        "Find the parameter, for example the noise, at which a family of mechanisms has a required privacy.",
        "dpverify calibrate mine.py:NoisySum --range 0.2 10 --first a.csv --second b.csv --epsilon 1",
    )
    command.add_argument(
        "family", metavar="FAMILY", help="A function from a parameter to a mechanism: module:name or path/file.py:name."
    )
    add = command.add_argument
    add("--range", type=float, nargs=2, required=True, metavar=("LOW", "HIGH"), help="Search between these parameters.")
    add_pair(command, required=False)
    add("--pairs", metavar="PAIRS", help="Several pairs instead of --first and --second, as in dpverify search.")
    add_box(command)
    add("--runs", type=int, default=SEARCH_RUNS, metavar="N", help="Selection runs of a search for the worst pair.")
    add("--epsilon", type=float, required=True, metavar="E", help="The required epsilon.")
    add("--delta", type=float, default=0.0, metavar="D", help="The required delta (default 0).")
    add_settings(command)
    add("--folder", metavar="DIR", help="Store checkpoints in this folder; the same command resumes a stopped run.")
    add_workers(command)
    add_quiet(command)
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run `dpverify calibrate`."""
    with stdout_to_stderr():
        first, second = (None if file is None else load_data(file) for file in (arguments.first, arguments.second))
        result = calibrate(
            load_object(arguments.family, what="family"),
            tuple(arguments.range),
            first,
            second,
            arguments.epsilon,
            arguments.delta,
            pairs=None if arguments.pairs is None else load_object(arguments.pairs, what="pairs"),
            box=arguments.box,
            runs=arguments.runs,
            settings=read_settings(arguments),
            executor=arguments.workers,
            folder=absolute(arguments.folder),
            progress=not arguments.quiet,
        )
    print_output(result)
    return 0
