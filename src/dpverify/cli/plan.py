"""`dpverify plan`: the number of runs that a verification needs."""

from __future__ import annotations

import argparse

from dpverify import plan_runs
from dpverify.cli.options import AddCommand
from dpverify.cli.output import print_output
from dpverify.errors import InputError
from dpverify.util.formatting import format_count, format_number


def add_to(add_command: AddCommand) -> None:
    """Add the command."""
    command = add_command(
        "plan",
        "Compute how many runs refute a false claim.",
        "dpverify plan --epsilon 1 --margin 1.25 --event-mass 0.3",
    )
    add = command.add_argument
    add("--epsilon", type=float, required=True, metavar="E", help="The claimed epsilon.")
    add("--delta", type=float, default=0.0, metavar="D", help="The claimed delta (default 0).")
    add("--margin", type=float, default=1.25, metavar="X", help="The true epsilon is X times E (default 1.25).")
    add(
        "--event-mass",
        type=float,
        default=0.5,
        metavar="P",
        help="The probability of the event under the data set for which it is more likely (default 0.5, which is "
        "favourable: rarer events need more runs).",
    )
    add("--alpha", type=float, default=0.05, metavar="A", help="The level of the test (default 0.05).")
    add("--power", type=float, default=0.8, metavar="P", help="Refute with this probability (default 0.8).")
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run `dpverify plan`."""
    if not arguments.margin > 1:
        raise InputError(f"--margin: found {arguments.margin:g}; expected a number above 1, a multiple of the claim")
    true_epsilon = arguments.margin * arguments.epsilon
    runs = plan_runs(
        arguments.epsilon, true_epsilon, arguments.event_mass, arguments.delta, arguments.alpha, arguments.power
    )
    favourable = "this is a favourable event; " if arguments.event_mass >= 0.5 else ""
    print_output(
        f"{format_count(runs)} test runs per data set refute epsilon {format_number(arguments.epsilon)} with "
        f"probability {format_number(arguments.power)}, if the true epsilon is {format_number(true_epsilon)} on an "
        f"event of probability {format_number(arguments.event_mass)}; --set test_runs={runs}\n"
        f"{favourable}a rarer event needs more runs, in proportion to one over its probability: --event-mass sets its "
        "probability"
    )
    return 0
