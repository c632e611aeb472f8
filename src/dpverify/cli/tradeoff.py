"""`dpverify tradeoff`: privacy against accuracy."""

from __future__ import annotations

import argparse
from functools import partial

from dpverify import rmse, tradeoff
from dpverify.cli.inputs import absolute, read_settings
from dpverify.cli.options import AddCommand, add_pair, add_quiet, add_settings, add_workers
from dpverify.cli.output import check_outputs, print_output, stdout_to_stderr, write_output
from dpverify.studies.files.loading import load_data, load_object


def add_to(add_command: AddCommand) -> None:
    """Add the command."""
    command = add_command(
        "tradeoff",
        "Compare the privacy and the accuracy of a family of mechanisms at several parameters.",
        "dpverify tradeoff mine.py:NoisySum --values 0.5 1 2 --truth truth.csv --first a.csv --second b.csv",
    )
    add = command.add_argument
    add("family", metavar="FAMILY", nargs="+", help="Functions from a parameter to a mechanism: path/file.py:name.")
    add("--values", type=float, nargs="+", required=True, metavar="X", help="The parameters.")
    add("--truth", required=True, metavar="F", help="The true values that the outputs are compared with, in a file.")
    add_pair(command)
    add("--delta", type=float, default=0.0, metavar="D", help="The delta at which epsilon is measured (default 0).")
    add_settings(command)
    add("--csv", metavar="FILE", help="Write the table to this file.")
    add("--html", metavar="FILE", help="Write a page to this file.")
    add("--folder", metavar="DIR", help="Store checkpoints in this folder; the same command resumes a stopped run.")
    add_workers(command)
    add_quiet(command)
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run `dpverify tradeoff`."""
    check_outputs(arguments.csv, arguments.html)
    csv, html = absolute(arguments.csv), absolute(arguments.html)
    with stdout_to_stderr():
        first, second, truth = (load_data(file) for file in (arguments.first, arguments.second, arguments.truth))
        families = {
            name.rpartition(":")[2]: (load_object(name, what="family"), arguments.values) for name in arguments.family
        }
        table = tradeoff(
            families,
            first,
            second,
            arguments.delta,
            rmse(truth),
            settings=read_settings(arguments),
            executor=arguments.workers,
            folder=absolute(arguments.folder),
            progress=not arguments.quiet,
        )
    print_output(table)
    for writer, path in ((table.to_csv, csv), (table.to_html, html)):
        if path is not None:
            write_output(partial(writer), path)
    return 0
