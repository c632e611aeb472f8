"""`dpverify compare`: two reports, before and after a change."""

from __future__ import annotations

import argparse

from dpverify import Report
from dpverify.cli.options import AddCommand
from dpverify.cli.output import check_outputs, print_output, write_output
from dpverify.studies.comparison import compare_reports


def add_to(add_command: AddCommand) -> None:
    """Add the command."""
    command = add_command(
        "compare",
        "Compare two reports, for example before and after a change of the mechanism.",
        "dpverify compare before.json after.json --html change.html",
    )
    command.add_argument("before", metavar="BEFORE.json", help="The first report.")
    command.add_argument("after", metavar="AFTER.json", help="The second report.")
    command.add_argument("--html", metavar="FILE", help="Write the comparison as a page to this file.")
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run `dpverify compare`."""
    check_outputs(None, arguments.html)
    comparison = compare_reports(Report.from_json(arguments.before), Report.from_json(arguments.after))
    print_output(comparison)
    if arguments.html:
        write_output(comparison.to_html, arguments.html)
    return 0
