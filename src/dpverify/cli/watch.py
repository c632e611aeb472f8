"""`dpverify watch`: a verification that stops as soon as it is decided, and shows how far it is."""

from __future__ import annotations

import argparse
import logging
import sys
import time

from dpverify import verify
from dpverify.cli.inputs import absolute, choose_mechanism, read_settings
from dpverify.cli.options import AddCommand, add_pair, add_quiet, add_settings, add_workers
from dpverify.cli.output import (
    NO_ANSWER,
    REFUTED,
    check_outputs,
    print_error,
    print_output,
    stdout_to_stderr,
    write_output,
)
from dpverify.studies.files.claim_text import load_claim
from dpverify.studies.files.loading import load_data
from dpverify.util.progress import is_terminal

SECONDS_BETWEEN_LINES = 1.0
LOGGER = "dpverify.early"  # says after every batch how far the verification is


def add_to(add_command: AddCommand) -> None:
    """Add the command."""
    command = add_command(
        "watch",
        "Verify until the claim is refuted, or certified over all events, and show the evidence meanwhile.",
        "dpverify watch mine.py:mechanism --first a.csv --second b.csv --epsilon 1",
    )
    add = command.add_argument
    add("mechanism", metavar="MECHANISM", help="The mechanism, module:name or path/file.py:name; add () to call it.")
    add_pair(command)
    add("--epsilon", type=float, metavar="E", help="Test the claim that epsilon is E.")
    add("--delta", type=float, default=0.0, metavar="D", help="Use this delta in the claim (default 0).")
    add("--claim", metavar="CLAIM", help="Test another claim, as in dpverify verify.")
    add_settings(command)
    add("--json", metavar="FILE", help="Write the report as JSON to this file.")
    add("--html", metavar="FILE", help="Write the report as a page to this file.")
    add("--folder", metavar="DIR", help="Store checkpoints here; the same command with more test runs continues.")
    add_workers(command)
    add_quiet(command)
    command.set_defaults(run=run)


class LiveLine(logging.Handler):
    """Shows the latest message: on a terminal in one line that is written again, elsewhere once a second."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._on_terminal, self._last, self._length = is_terminal(sys.stderr), -SECONDS_BETWEEN_LINES, 0

    def emit(self, record: logging.LogRecord) -> None:
        """Show a message."""
        text, now = f"dpverify: {record.getMessage()}", time.monotonic()
        if self._on_terminal:
            print(f"\r{text.ljust(self._length)}", end="", file=sys.stderr, flush=True)
            self._length = len(text)
        elif now - self._last >= SECONDS_BETWEEN_LINES:
            print(text, file=sys.stderr, flush=True)
            self._last = now

    def close(self) -> None:
        """End the line."""
        if self._length:
            print(file=sys.stderr, flush=True)
        super().close()


def run(arguments: argparse.Namespace) -> int:
    """Run `dpverify watch`."""
    check_outputs(arguments.json, arguments.html)
    json, html, folder = map(absolute, (arguments.json, arguments.html, arguments.folder))
    claim = None if arguments.claim is None else load_claim(arguments.claim)
    settings = read_settings(arguments).change(stop_early=True)
    logger, handler = logging.getLogger(LOGGER), LiveLine()
    level = logger.level
    with stdout_to_stderr():
        first, second = load_data(arguments.first), load_data(arguments.second)
        mechanism = choose_mechanism(arguments)
        if not arguments.quiet:
            logger.addHandler(handler)
            logger.setLevel(logging.INFO)
        try:
            report = verify(
                mechanism,
                first,
                second,
                arguments.epsilon,
                arguments.delta,
                claim=claim,
                settings=settings,
                executor=arguments.workers,
                folder=folder,
                progress=False,
            )
        finally:
            logger.removeHandler(handler)
            logger.setLevel(level)
            handler.close()
    report.provenance["command"] = arguments.line
    print_output(report)
    for writer, path in ((report.to_json, json), (report.to_html, html)):
        if path is not None:
            write_output(writer, path)
    if report.voiding:
        return print_error(report.voiding[0].value, NO_ANSWER)
    return REFUTED if report.refuted else 0
