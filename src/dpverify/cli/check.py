"""`dpverify check`: all claims of a project."""

from __future__ import annotations

import argparse
import sys

from dpverify.ci.check import run_check
from dpverify.ci.junit import FAILED, TOO_WEAK
from dpverify.cli.inputs import absolute
from dpverify.cli.options import AddCommand, add_quiet, add_trust
from dpverify.cli.output import BAD_INPUT, NO_ANSWER, REFUTED, print_error, print_output, stdout_to_stderr
from dpverify.report.report import load_pages
from dpverify.report.statements import Verdict


def add_to(add_command: AddCommand) -> None:
    """Add the command."""
    command = add_command(
        "check",
        "Verify all claims of a project, and compare them with the last release.",
        "dpverify check claims.toml --workers 2 --release 1.4",
    )
    command.add_argument("file", metavar="FILE.toml", help="The manifest: mechanisms, pairs and claims.")
    command.add_argument(
        "--folder", metavar="DIR", help="Write the results to this folder (default: beside the manifest)."
    )
    command.add_argument(
        "--workers", type=int, default=1, metavar="N", help="Verify N claims at the same time (default 1)."
    )
    command.add_argument(
        "--release", metavar="NAME", help="The name of this release in the history (default: the current commit)."
    )
    command.add_argument(
        "--history", metavar="FILE", help="Keep the answers of all releases here (default: history.json in the folder)."
    )
    command.add_argument("--no-pages", action="store_true", help="Write no HTML pages.")
    add_trust(command)
    add_quiet(command)
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run `dpverify check`, and return the exit status of its worst answer."""
    if not arguments.no_pages:
        load_pages()

    def notify(line: str) -> None:
        if not arguments.quiet:
            print(f"dpverify: {line}", file=sys.stderr, flush=True)

    with stdout_to_stderr():
        check = run_check(
            arguments.file,
            absolute(arguments.folder),
            workers=arguments.workers,
            release=arguments.release,
            history=absolute(arguments.history),
            pages=not arguments.no_pages,
            trust_results=arguments.trust_results,
            notify=notify,
        )
    shown = "page.html" if not arguments.no_pages else "results.csv"
    print_output(arguments.shorten(f"{check}\nresults: {check.folder / shown}"))
    failed, weak = check.in_state(FAILED), check.in_state(TOO_WEAK, Verdict.NO_ANSWER.name)
    if failed:
        return print_error(f"{failed[0]['name']} failed: {failed[0]['problem']}", BAD_INPUT)
    if check.in_state(Verdict.REFUTED.name):
        return REFUTED
    return print_error(f"{weak[0]['name']}: {weak[0]['problem']}", NO_ANSWER) if weak else 0
