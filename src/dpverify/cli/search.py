"""`dpverify search`: the worst pair of data sets."""

from __future__ import annotations

import argparse
from typing import Any, cast

from dpverify import search_pairs
from dpverify.cli.inputs import absolute, read_settings
from dpverify.cli.options import AddCommand, add_box, add_quiet, add_settings, add_workers
from dpverify.cli.output import NO_ANSWER, REFUTED, print_error, print_output, stdout_to_stderr
from dpverify.errors import InputError
from dpverify.mechanisms.protocol import accepts_arguments
from dpverify.studies.files.claim_text import load_claim
from dpverify.studies.files.loading import call_user_code, load_object


def add_to(add_command: AddCommand) -> None:
    """Add the command."""
    command = add_command(
        "search",
        "Find the pair of data sets with the largest privacy loss, and verify it.",
        "dpverify search mine.py:mechanism mine.py:pairs --runs 80000 --epsilon 1",
    )
    add = command.add_argument
    add("mechanism", metavar="MECHANISM", help="The mechanism, module:name or path/file.py:name; add () to call it.")
    add(
        "pairs",
        metavar="PAIRS",
        help="A list of pairs (first, second), or a mapping from names to pairs, or a function that returns one of "
        "them. With --box: a function from a point to a pair. It is named in the same way.",
    )
    add_box(command)
    add("--runs", type=int, default=100_000, metavar="N", help="Selection runs of the search (default 100000).")
    add("--epsilon", type=float, metavar="E", help="Test the claim that epsilon is E on the worst pair.")
    add("--delta", type=float, default=0.0, metavar="D", help="Use this delta (default 0).")
    add("--claim", metavar="CLAIM", help="Test another claim, as in dpverify verify.")
    add_settings(command)
    add("--folder", metavar="DIR", help="Store checkpoints in this folder; the same command resumes a stopped run.")
    add_workers(command)
    add_quiet(command)
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run `dpverify search`; the exit status is that of the worst pair."""
    with stdout_to_stderr():
        pairs = load_object(arguments.pairs, what="pairs")
        if callable(pairs) and arguments.box is None and not hasattr(pairs, "bounds"):
            if not accepts_arguments(pairs, 0):
                raise InputError("--box: found none for a function of pairs; expected an interval for each coordinate")
            pairs = call_user_code("pairs: calling the function", pairs)
        found = search_pairs(
            load_object(arguments.mechanism),
            cast("Any", pairs),  # search_pairs checks it
            arguments.epsilon,
            arguments.delta,
            claim=None if arguments.claim is None else load_claim(arguments.claim),
            runs=arguments.runs,
            bounds=arguments.box,
            settings=read_settings(arguments),
            executor=arguments.workers,
            folder=absolute(arguments.folder),
            progress=not arguments.quiet,
        )
    print_output(found)
    if found.report.voiding:
        return print_error(found.report.voiding[0].value, NO_ANSWER)
    return REFUTED if found.report.refuted else 0
