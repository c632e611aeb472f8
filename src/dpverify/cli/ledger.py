"""`dpverify ledger`: the evidence of all versions of a project."""

from __future__ import annotations

import argparse
from pathlib import Path

from dpverify.cli.options import AddCommand
from dpverify.cli.output import REFUTED, print_output
from dpverify.errors import InputError
from dpverify.studies.releases.ledger import locked, read_ledger, write_ledger


def add_to(add_command: AddCommand) -> None:
    """Add the command."""
    command = add_command(
        "ledger",
        "Show the evidence that the tests of a project have collected, or confirm an alarm.",
        "dpverify ledger ledger.json --confirm tests/test_privacy.py::test_sum",
    )
    command.add_argument("file", metavar="FILE.json", help="The ledger of the pytest plugin.")
    command.add_argument(
        "--confirm",
        metavar="NAME",
        help="State that the alarm of this claim was looked at. Its evidence starts again, with half of its level.",
    )
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run `dpverify ledger`; the exit status is 1 if an alarm is not confirmed."""
    if not Path(arguments.file).exists():
        raise InputError(f"{arguments.file}: found no file; expected a ledger, which pytest --dpverify-write makes")
    if arguments.confirm is not None:
        with locked(arguments.file):
            write_ledger(arguments.file, read_ledger(arguments.file).confirm(arguments.confirm))
        print_output(f"{arguments.confirm}: confirmed; its evidence starts again, with half of its level")
    ledger = read_ledger(arguments.file)
    print_output(ledger)
    return REFUTED if any(record.alarm is not None for record in ledger.records) else 0
