"""`dpverify ledger`: the evidence of all versions of a project."""

from __future__ import annotations

import argparse
from contextlib import nullcontext
from pathlib import Path

from dpverify.ci.ledger import read_ledger, write_ledger
from dpverify.cli.options import AddCommand
from dpverify.cli.output import REFUTED, print_output
from dpverify.errors import InputError
from dpverify.util.files import locked


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
    for option, values, text in (
        ("--rename", ("OLD", "NEW"), "State that a test was renamed. Its evidence and its alarm stay."),
        ("--merge", ("OTHER.json",), "Add the versions that only another copy of this ledger has."),
    ):
        command.add_argument(option, nargs=len(values), metavar=values, help=text)
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run `dpverify ledger`; the exit status is 1 if an alarm is not confirmed."""
    confirm, rename, merged = arguments.confirm, arguments.rename, arguments.merge or []
    for file in (arguments.file, *merged):
        if not Path(file).exists():
            raise InputError(f"{file}: found no file; expected a ledger, which pytest --dpverify-write makes")
    with locked(arguments.file) if confirm or rename or merged else nullcontext():
        changed = ledger = read_ledger(arguments.file)
        for file in merged:
            changed = changed.merge(read_ledger(file))
        if rename is not None:
            changed = changed.rename(*rename)
        if confirm is not None:
            changed = changed.confirm(confirm)
        if changed is not ledger:
            write_ledger(arguments.file, changed)
    if confirm is not None:
        print_output(f"{confirm}: confirmed; its evidence starts again, with half of its level")
    print_output(changed)
    return REFUTED if any(record.alarm is not None for record in changed.records) else 0
